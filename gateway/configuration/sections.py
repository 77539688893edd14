"""
Typed configuration: one frozen dataclass per section, every key with its default.

Read once at start by gateway.configuration.reader; every other module receives its own section as a value.
Sizes and durations are bytes and seconds here. The sections that belong to the packages below are defined
there and taken here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from exporters.settings import DestinationSettings, UpstreamSettings
from spool.settings import KIB, MIB, Duration, Size, SpoolSettings


class ConfigError(Exception):
    """The configuration cannot run; `problems` holds every reason, in the user's own key names."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    listen: str = "127.0.0.1:4318"
    grpc_listen: str = "127.0.0.1:4317"
    operator_listen: str = ""
    operator_plaintext: bool = False  # others than this machine may reach operator_listen without TLS
    accept_bearer: bool = False
    api_key_file: Path | None = None
    max_body_bytes: Size = 64 * MIB
    max_inflight_bytes: Size = 64 * MIB
    small_body_bytes: Size = MIB
    small_body_reserve: Size = 8 * MIB
    min_upload_rate: Size = 16 * KIB  # bytes a second, of bodies over small_body_bytes; 0: any
    max_connections: int = 10_000
    max_items: int = 250_000
    max_grpc_messages: int = 4
    chain_keys: tuple[str, ...] = ("*",)  # keys by name whose senders may be gateways, with records as they are
    max_key_requests_per_s: int = 0
    max_key_bytes_per_s: Size = 0
    cors_origins: tuple[str, ...] = ()
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class UnitCostStream:
    """`single_writer`: no other gateway writes the stream, so its totals may replace those of the service."""

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
class DeviceSettings:
    policy: str = "auto"
    heartbeat_interval: Duration = 60.0
    host_id: bool = False
    max: int = 10_000


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Read by `tollhouse agent` alone. A device without a key needs `enrolment_key_file` or `_env`."""

    gateway: str = ""
    enrolment_key_file: Path | None = None
    enrolment_key_env: str = ""
    device_id: str = ""
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
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
    cache_write_1h: Decimal | None = None


@dataclass(frozen=True, kw_only=True)
class PriceSettings:
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
class LedgerSettings:
    """`tags` are the tags that costs can be grouped by; a change holds for what is counted from then on."""

    tags: tuple[str, ...] = ("service",)


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """`signing_secret_file`, of helicone alone: webhooks that are not signed with it are refused."""

    count: bool = True
    signing_secret_file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class LoggingSettings:
    """`lines_per_minute` bounds the lines of one kind about one address."""

    level: str = "info"
    lines_per_minute: int = 60


@dataclass(frozen=True, kw_only=True)
class Config:
    data_dir: Path = Path("tollhouse-data")
    server: ServerSettings = field(default_factory=ServerSettings)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    destinations: tuple[DestinationSettings, ...] = ()
    devices: DeviceSettings = field(default_factory=DeviceSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    prices: PriceSettings = field(default_factory=PriceSettings)
    attribution: tuple[AttributionRule, ...] = ()
    sources: Mapping[str, SourceSettings] = field(default_factory=dict)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    streams: tuple[UnitCostStream, ...] = ()
    publish: tuple[Publication, ...] = ()
    log: LoggingSettings = field(default_factory=LoggingSettings)


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT as its parts; an IPv6 host loses its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone. A name other than localhost may mean anything, so it counts as public."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
