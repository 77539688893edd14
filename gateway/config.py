"""
Typed configuration: one frozen dataclass per section, every key with its default, all problems at once.

File, then environment (`TOLLHOUSE_SECTION__KEY`), then flags; read once at start. Every other module receives its own
section as a value. Sizes ("64MiB") become bytes and durations ("10s") become seconds here, at the door.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from gateway.normalise.tags import is_content
from spool.devices import is_device_id
from spool.ledger import DIMENSIONS as LEDGER_DIMENSIONS
from spool.record import TOPICS
from spool.scopes import SCOPES, USE_CASES

MAX_LEDGER_TAGS = 8
MAX_STREAM_KEYS = 5
PUBLISHED_MEASURES = ("cost", "calls", "tokens", "input_tokens", "output_tokens")
KIB, MIB, GIB = 1024, 1024**2, 1024**3


class ConfigError(Exception):
    """The configuration cannot run; `problems` holds every reason, in the user's own key names."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Size(int):
    """Bytes, written as 64MiB, 4MiB, 10GiB or a plain number."""


class Duration(float):
    """Seconds, written as 10s, 500ms, 5m, 1h, 7d or a plain number."""


@dataclass(frozen=True, kw_only=True)
class Server:
    listen: str = "127.0.0.1:4318"
    grpc_listen: str = "127.0.0.1:4317"
    operator_listen: str = ""
    accept_bearer: bool = False
    api_key_file: Path | None = None
    max_body_bytes: Size = Size(64 * MIB)
    max_inflight_bytes: Size = Size(64 * MIB)
    max_key_requests_per_s: int = 0
    max_key_bytes_per_s: Size = Size(0)
    cors_origins: tuple[str, ...] = ()
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Spool:
    max_bytes: Size = Size(10 * GIB)
    retention: Duration = Duration(7 * 86400)
    hold: Duration = Duration(10)
    duplicate_window: Duration = Duration(7 * 86400)
    duplicate_ids: int = 10_000_000


@dataclass(frozen=True, kw_only=True)
class UpstreamKey:
    name: str = ""
    secret_file: Path | None = None
    secret_env: str = ""
    use_cases: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EventStream:
    """
    What the events of one type become: `sum` operations of a stream.

    `element`, `value` and `dimensions` say where in an event: `subject`, `source`, `type`, or a name in its data. An
    empty `value` counts events.
    """

    stream: str = ""
    type: str = "allocation"
    granularity: str = "DAILY"
    element: str = "subject"
    value: str = ""
    dimensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Upstream:
    base_url: str = ""
    ai_telemetry_url: str = ""
    connection_id: str = ""
    billing_segment: str = "external"
    proxy: str = ""
    ca_file: Path | None = None
    timeout: Duration = Duration(30)
    batch_records: int = 1000
    batch_bytes: Size = Size(4 * MIB)
    compression: str = "gzip"
    idempotency_header: str = "Idempotency-Key"
    in_flight: int = 4
    keys: tuple[UpstreamKey, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    kind: str = "service"
    events: Mapping[str, EventStream] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class UnitCostStream:
    """`single_writer`: nobody but this house writes the stream, so its totals may replace what the service has."""

    name: str = ""
    single_writer: bool = False


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Sums of the ledger as a stream: `measure` by a dimension, for each of its values, every day or hour."""

    stream: str = ""
    measure: str = "cost"
    per: str = ""
    by: str = "team"
    granularity: str = "DAILY"
    dimensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Destination:
    name: str = ""
    type: str = ""
    path: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_file: Path | None = None
    topics: tuple[str, ...] = ("ai-telemetry",)
    required: bool = True
    start: str = "oldest"


@dataclass(frozen=True, kw_only=True)
class Devices:
    policy: str = "auto"
    heartbeat_interval: Duration = Duration(60)
    host_id: bool = False
    max: int = 10_000


@dataclass(frozen=True, kw_only=True)
class Agent:
    """Of `tollhouse agent` alone. Until the device has its key, it needs `enrolment_key_file` or `..._env`."""

    gateway: str = ""
    enrolment_key_file: Path | None = None
    enrolment_key_env: str = ""
    device_id: str = ""
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Privacy:
    keep_attributes: tuple[str, ...] = ()
    emails: str = "hash"


@dataclass(frozen=True, kw_only=True)
class PriceOverride:
    """Prices in dollars per million tokens. `model` may end in `*`."""

    model: str = ""
    provider: str = ""
    since: str = ""
    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


@dataclass(frozen=True, kw_only=True)
class Prices:
    file: Path | None = None
    override: tuple[PriceOverride, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Match:
    """Every given field must fit; a trailing `*` stands for any ending."""

    api_key: str = ""
    user: str = ""
    device: str = ""
    model: str = ""
    tag: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    team: str = ""
    user: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AttributionRule:
    """Where `match` fits, `set` fills what is null."""

    match: Match = field(default_factory=Match)
    set: Assignment = field(default_factory=Assignment)


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """`tags` are the tags that costs can be grouped by; a change holds for what is counted from then on."""

    tags: tuple[str, ...] = ("service",)


@dataclass(frozen=True, kw_only=True)
class Source:
    count: bool = True


@dataclass(frozen=True, kw_only=True)
class Log:
    level: str = "info"


@dataclass(frozen=True, kw_only=True)
class Config:
    data_dir: Path = Path("tollhouse-data")
    server: Server = field(default_factory=Server)
    spool: Spool = field(default_factory=Spool)
    upstream: Upstream = field(default_factory=Upstream)
    destinations: tuple[Destination, ...] = ()
    devices: Devices = field(default_factory=Devices)
    agent: Agent = field(default_factory=Agent)
    privacy: Privacy = field(default_factory=Privacy)
    prices: Prices = field(default_factory=Prices)
    attribution: tuple[AttributionRule, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    streams: tuple[UnitCostStream, ...] = ()
    publish: tuple[Publication, ...] = ()
    log: Log = field(default_factory=Log)


def load(
    path: Path | None = None, *, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Config:
    """
    The configuration of a file, overlaid by the environment, overlaid by flags (dotted names, None = not given).

    Raises ConfigError with every problem at once. Relative paths are relative to the file.
    """
    problems: list[str] = []
    tree: dict[str, Any] = {}
    if path is not None:
        try:
            tree = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigError([f"{path}: {error.strerror}"]) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError([f"{path}: {error}"]) from error
    for name, text in sorted((os.environ if env is None else env).items()):
        # A name without a section is somebody's own variable, such as TOLLHOUSE_KEY of `tollhouse send`.
        if name.startswith(ENV_PREFIX) and ("__" in name or name == "TOLLHOUSE_DATA_DIR"):
            _overlay(tree, name.removeprefix(ENV_PREFIX).lower().split("__"), text, name, problems)
    for name, value in (flags or {}).items():
        if value is not None:
            _overlay(tree, name.split("."), value, name, problems)
    config: Config = _section(Config, tree, "", (path.parent if path else Path()).absolute(), problems)
    problems += _problems(config)
    if problems:
        raise ConfigError(problems)
    return config


ENV_PREFIX = "TOLLHOUSE_"
_RENAMED = {"upstream.key": "upstream.keys", "destination": "destinations", "source": "sources"}


def _overlay(tree: dict[str, Any], names: list[str], value: Any, shown: str, problems: list[str]) -> None:
    for name in names[:-1]:
        inner: Any = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            problems.append(f"{shown} names a part of something that is no section")
            return
        tree = inner
    tree[names[-1]] = value


def _section(kind: type[Any], tree: Any, prefix: str, base: Path, problems: list[str]) -> Any:
    """One dataclass from one table; every problem goes to the list and the default stands in for the bad value."""
    if not isinstance(tree, dict):
        problems.append(f"{prefix or 'the file'} must be a table")
        return kind()
    hints = typing.get_type_hints(kind)
    for unknown in sorted(set(tree) - set(hints)):
        name = _join(prefix, unknown)
        near = difflib.get_close_matches(unknown, hints, 1, 0.6)
        meant = _RENAMED.get(name) or (_join(prefix, near[0]) if near else None)
        problems.append(f"unknown key {name}" + (f"; did you mean {meant}?" if meant else ""))
    values = {
        name: _value(hints[name], value, _join(prefix, name), base, problems)
        for name, value in tree.items()
        if name in hints
    }
    if "data_dir" in hints:
        values.setdefault("data_dir", base / "tollhouse-data")
    return kind(**{name: value for name, value in values.items() if value is not _BAD})


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


_BAD = object()
_SIZES = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1024 * GIB,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
}
_DURATIONS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*\Z")


def _value(kind: Any, value: Any, name: str, base: Path, problems: list[str]) -> Any:
    """One value as its type, or _BAD and a problem in the user's words."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
        if value == "":
            return None
        origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _section(typing.cast("type[Any]", kind), value, name, base, problems)
    if origin is tuple:
        return _items(typing.get_args(kind)[0], value, name, base, problems)
    if origin is not None:  # Mapping[str, ...]
        if not isinstance(value, dict):
            problems.append(f"{name} must be a table")
            return _BAD
        inner = typing.get_args(kind)[1]
        return {key: _value(inner, item, _join(name, key), base, problems) for key, item in value.items()}
    converted = _scalar(kind, value, base)
    if converted is _BAD:
        problems.append(f"{name} must be {_WORDS[kind]}")
    return converted


def _items(kind: Any, value: Any, name: str, base: Path, problems: list[str]) -> Any:
    if isinstance(value, str):  # from the environment
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list):
        problems.append(f"{name} must be a list")
        return _BAD
    return tuple(_value(kind, item, f"{name}[{place}]", base, problems) for place, item in enumerate(value))


_WORDS: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number, 0 or more",
    Size: 'a size such as "64MiB"',
    Duration: 'a duration such as "10s", "5m" or "7d"',
    Path: "a path",
    Decimal: "a price as text or number",
}


def _scalar(kind: Any, value: Any, base: Path) -> Any:
    if kind is bool:
        if isinstance(value, str):
            value = {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), value)
        return value if isinstance(value, bool) else _BAD
    if isinstance(value, bool):
        return _BAD
    if kind in (Size, Duration):
        units: Mapping[str, float] = _SIZES if kind is Size else _DURATIONS
        match = _QUANTITY.match(str(value))
        unit = units.get(match[2].lower()) if match else None
        return _BAD if match is None or unit is None else kind(float(match[1]) * unit)
    if kind is int:
        text = str(value)
        return int(text) if text.isdecimal() and text.isascii() else _BAD
    if kind is Decimal:
        try:
            price = Decimal(str(value))
        except InvalidOperation:
            return _BAD
        return price if price.is_finite() and price >= 0 else _BAD
    if not isinstance(value, str):
        return _BAD
    return value if kind is str else base / Path(value).expanduser()


def _problems(config: Config) -> Iterator[str]:
    """Every reason this configuration cannot run, in the user's own key names."""
    yield from _server_problems(config.server)
    if config.spool.hold >= config.spool.retention:
        yield "spool.hold must be shorter than spool.retention, or records expire before they are sent"
    if config.spool.max_bytes < 16 * MIB:
        yield "spool.max_bytes must be at least 16MiB"
    if config.spool.duplicate_ids < 1:
        yield "spool.duplicate_ids must be at least 1"
    yield from _upstream_problems(config.upstream)
    yield from _destination_problems(config.destinations)
    yield from _stream_problems(config)
    yield from _one_of("devices.policy", config.devices.policy, ("auto", "approve", "closed"))
    if config.devices.heartbeat_interval < 1:
        yield "devices.heartbeat_interval must be at least 1s"
    yield from _agent_problems(config)
    yield from _one_of("privacy.emails", config.privacy.emails, ("hash", "keep", "drop"))
    yield from _one_of("log.level", config.log.level, ("debug", "info", "warning", "error"))
    for name in config.privacy.keep_attributes:
        if is_content(name):
            yield f"privacy.keep_attributes: {name} is message content and can never be kept"
    if len(config.ledger.tags) > MAX_LEDGER_TAGS or not all(config.ledger.tags):
        yield f"ledger.tags must be at most {MAX_LEDGER_TAGS} names of tags"
    for place, rule in enumerate(config.attribution):
        if rule.match == Match():
            yield f"attribution[{place}].match needs api_key, user, device, model or tag"
        if rule.set == Assignment():
            yield f"attribution[{place}].set needs team, user or tags"
    for place, override in enumerate(config.prices.override):
        if not override.model:
            yield f"prices.override[{place}].model is required"
        if override.input is None and override.output is None:
            yield f"prices.override[{place}] needs input or output, in dollars per million tokens"
        if override.since and not _is_day(override.since):
            yield f'prices.override[{place}].since must be a day such as "2026-11-20"'


def _server_problems(server: Server) -> Iterator[str]:
    for name in ("listen", "grpc_listen", "operator_listen"):
        address = getattr(server, name)
        if (address or name == "listen") and not _is_address(address):
            yield f'server.{name} must be HOST:PORT, such as "127.0.0.1:4318"'
    if bool(server.tls_cert_file) != bool(server.tls_key_file):
        yield "server.tls_cert_file and server.tls_key_file go together"
    if server.tls_client_ca_file and not server.tls_cert_file:
        yield "server.tls_client_ca_file needs server.tls_cert_file and server.tls_key_file"
    if server.max_body_bytes < 64 * KIB:
        yield "server.max_body_bytes must be at least 64KiB"
    if server.max_inflight_bytes < server.max_body_bytes:
        yield "server.max_inflight_bytes must not be less than server.max_body_bytes"


def _upstream_problems(upstream: Upstream) -> Iterator[str]:
    if upstream.keys and not upstream.base_url:
        yield "upstream.base_url is required when upstream.keys are given"
    for name in ("base_url", "ai_telemetry_url", "proxy"):
        if getattr(upstream, name) and not _is_url(getattr(upstream, name)):
            yield f"upstream.{name} must begin with http:// or https://"
    yield from _one_of("upstream.kind", upstream.kind, ("service", "tollhouse"))
    for type, event in upstream.events.items():
        shown = f"upstream.events.{type}"
        yield from _stream_name(f"{shown}.stream", event.stream)
        yield from _one_of(f"{shown}.type", event.type, ("allocation", "metric"))
        yield from _one_of(f"{shown}.granularity", event.granularity, ("HOURLY", "DAILY", "MONTHLY"))
        if len(event.dimensions) > MAX_STREAM_KEYS:
            yield f"{shown}.dimensions must be at most {MAX_STREAM_KEYS}"
    yield from _one_of("upstream.compression", upstream.compression, ("gzip", "none"))
    if upstream.batch_records < 1:
        yield "upstream.batch_records must be at least 1"
    if upstream.in_flight < 1:
        yield "upstream.in_flight must be at least 1"
    if upstream.timeout <= 0:
        yield "upstream.timeout must be above 0s"
    names: set[str] = set()
    for place, key in enumerate(upstream.keys):
        shown = f"upstream.keys[{place}]"
        if not key.name:
            yield f"{shown}.name is required"
        elif key.name in names:
            yield f"{shown}.name {key.name!r} is used twice"
        names.add(key.name)
        if bool(key.secret_file) == bool(key.secret_env):
            yield f"{shown} needs secret_file or secret_env, and not both"
        if bool(key.use_cases) == bool(key.scopes):
            yield f"{shown} needs use_cases or scopes, never both"
        for scope in key.scopes:
            yield from _one_of(f"{shown}.scopes", scope, tuple(sorted(SCOPES)))
        for use_case in key.use_cases:
            yield from _one_of(f"{shown}.use_cases", use_case, tuple(USE_CASES))


def _agent_problems(config: Config) -> Iterator[str]:
    agent = config.agent
    if agent.gateway and not _is_url(agent.gateway):
        yield "agent.gateway must begin with http:// or https://"
    if agent.gateway and config.upstream.base_url:
        yield "agent.gateway and upstream.base_url exclude each other: an agent's upstream is its gateway"
    if agent.enrolment_key_file and agent.enrolment_key_env:
        yield "agent needs enrolment_key_file or enrolment_key_env, and not both"
    if agent.device_id and not is_device_id(agent.device_id):
        yield "agent.device_id: 1 to 128 letters, digits and any of . _ : @ -"


def _stream_problems(config: Config) -> Iterator[str]:
    names: set[str] = set()
    for place, stream in enumerate(config.streams):
        yield from _stream_name(f"streams[{place}].name", stream.name)
        if stream.name in names:
            yield f"streams[{place}].name {stream.name!r} is used twice"
        names.add(stream.name)
    published: set[str] = set()
    dimensions = (*LEDGER_DIMENSIONS, *(f"tag:{name}" for name in config.ledger.tags))
    for place, rule in enumerate(config.publish):
        shown = f"publish[{place}]"
        yield from _stream_name(f"{shown}.stream", rule.stream)
        if rule.stream in published:
            yield f"{shown}.stream {rule.stream!r} is used twice"
        published.add(rule.stream)
        yield from _one_of(f"{shown}.measure", rule.measure, PUBLISHED_MEASURES)
        yield from _one_of(f"{shown}.by", rule.by, dimensions)
        yield from _one_of(f"{shown}.granularity", rule.granularity, ("HOURLY", "DAILY"))
        if rule.per:
            yield from _one_of(f"{shown}.per", rule.per, PUBLISHED_MEASURES)
        for name, dimension in rule.dimensions.items():
            yield from _one_of(f"{shown}.dimensions.{name}", dimension, dimensions)
        if len(rule.dimensions) > MAX_STREAM_KEYS:
            yield f"{shown}.dimensions must be at most {MAX_STREAM_KEYS}"


def _stream_name(shown: str, name: str) -> Iterator[str]:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,256}", name):
        yield f"{shown} is required: letters, digits, '_', '.' and '-', at most 256"


def _destination_problems(destinations: tuple[Destination, ...]) -> Iterator[str]:
    names: set[str] = set()
    for place, destination in enumerate(destinations):
        shown = f"destinations[{place}]"
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", destination.name):
            yield f"{shown}.name is required: letters, digits, '.', '_' and '-', at most 64"
        elif destination.name == "upstream" or destination.name in names:
            yield f"{shown}.name {destination.name!r} is already used"
        names.add(destination.name)
        yield from _one_of(f"{shown}.type", destination.type, tuple(DESTINATION_NEEDS))
        need = DESTINATION_NEEDS.get(destination.type)
        if need and not getattr(destination, need):
            yield f"{shown}.{need} is required for type {destination.type!r}"
        if destination.url and not _is_url(destination.url):
            yield f"{shown}.url must begin with http:// or https://"
        yield from _one_of(f"{shown}.start", destination.start, ("oldest", "now"))
        for topic in destination.topics:
            yield from _one_of(f"{shown}.topics", topic, TOPICS)


DESTINATION_NEEDS = {"ndjson": "path", "focus": "path", "otlp": "url", "webhook": "url"}


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> Iterator[str]:
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else "one of " + ", ".join(map(repr, allowed[:12]))
        yield f"{name}: {value!r} is not known; {hint}"


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) < 65536


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT as its parts; an IPv6 host loses its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
