"""
Typed configuration: one frozen dataclass per section, every key with its default.

Read once at start by gateway.configuration.reader; every other module receives its own section as a value. Sizes and
durations are bytes and seconds here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

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
    pending_window: Duration = Duration(600)
    pending_items: int = 20_000
    pending_bytes: Size = Size(16 * MIB)


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
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
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
    """`signing_secret_file`, of helicone alone: its webhooks are refused unless they are signed with that secret."""

    count: bool = True
    signing_secret_file: Path | None = None


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


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT as its parts; an IPv6 host loses its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
