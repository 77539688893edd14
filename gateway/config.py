"""
Typed configuration: one frozen dataclass per section, every key with its default, all problems at once.

File, then environment (`TOLLHOUSE_SECTION__KEY`), then flags; read once at start. Every other module receives its own
section as a value. Sizes ("64MiB") become bytes and durations ("10s") become seconds here, at the door.
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


@dataclass(frozen=True, kw_only=True)
class UpstreamKey:
    name: str = ""
    secret_file: Path | None = None
    secret_env: str = ""
    use_cases: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


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
class AttributionRule:
    """Every given match field must fit (a trailing `*` matches any ending); what is set fills null fields."""

    api_key: str = ""
    user: str = ""
    device: str = ""
    model: str = ""
    tag: Mapping[str, str] = field(default_factory=dict)
    set_team: str = ""
    set_user: str = ""
    set_tags: Mapping[str, str] = field(default_factory=dict)


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
    privacy: Privacy = field(default_factory=Privacy)
    prices: Prices = field(default_factory=Prices)
    attribution: tuple[AttributionRule, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    log: Log = field(default_factory=Log)
