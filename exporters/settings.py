"""What the configuration says of the way out: the sections as plain values, filled in by the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class KeySettings:
    """One [[upstream.keys]]: a secret by file or environment, with either `use_cases` or `scopes`."""

    name: str
    secret_file: Path | None = None
    secret_env: str = ""
    use_cases: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EventStream:
    """One type of [upstream.events]. `element`, `value` and `dimensions` say where in an event these are found."""

    stream: str
    type: str = "allocation"
    granularity: str = "DAILY"
    element: str = "subject"
    value: str = ""  # "" counts events
    dimensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class UpstreamSettings:
    """The [upstream] section; `base_url` empty means that there is none."""

    base_url: str = ""
    ai_telemetry_url: str = ""
    connection_id: str = ""
    billing_segment: str = "external"
    proxy: str = ""
    ca_file: Path | None = None
    timeout_s: float = 30.0
    batch_records: int = 1000
    batch_bytes: int = 4 * 1024**2
    compression: str = "gzip"
    idempotency_header: str = "Idempotency-Key"
    in_flight: int = 4
    keys: tuple[KeySettings, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    kind: str = "service"  # or "tollhouse": operations keep their ids, and events travel as events
    events: Mapping[str, EventStream] = field(default_factory=dict)
    single_writer: frozenset[str] = frozenset()  # streams that nobody else writes


@dataclass(frozen=True, kw_only=True)
class DestinationSettings:
    """One [[destinations]]."""

    name: str
    type: str
    path: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_file: Path | None = None
    topics: tuple[str, ...] = ("ai-telemetry",)
    required: bool = True
    start: str = "oldest"
