"""The sections of the configuration that say what is forwarded where: [upstream] and [[destinations]]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spool.settings import MIB, Duration, Size


@dataclass(frozen=True, kw_only=True)
class UpstreamKey:
    """One [[upstream.keys]]: a secret by file or environment, with either `use_cases` or `scopes`."""

    name: str = ""
    secret_file: Path | None = None
    secret_env: str = ""
    use_cases: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EventStream:
    """
    One type of [upstream.events]: its events become `sum` operations of a unit-cost stream.

    `element`, `value` and `dimensions` name a place in an event: `subject`, `source`, `type`, or a name in
    its data. An empty `value` counts events.
    """

    stream: str = ""
    type: str = "allocation"
    granularity: str = "DAILY"
    element: str = "subject"
    value: str = ""
    dimensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class UpstreamSettings:
    """The [upstream] section. An empty `base_url` means that there is no upstream."""

    base_url: str = ""
    ai_telemetry_url: str = ""
    connection_id: str = ""
    billing_segment: str = "external"
    proxy: str = ""
    ca_file: Path | None = None
    timeout: Duration = 30.0
    batch_records: int = 1000
    batch_bytes: Size = 4 * MIB
    compression: str = "gzip"
    idempotency_header: str = "Idempotency-Key"
    in_flight: int = 4
    keys: tuple[UpstreamKey, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    kind: str = "service"  # or "tollhouse": operations keep their ids, and events travel as events
    events: Mapping[str, EventStream] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DestinationSettings:
    """One [[destinations]]."""

    name: str = ""
    type: str = ""
    path: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_file: Path | None = None
    topics: tuple[str, ...] = ("ai-telemetry",)
    required: bool = True
    start: str = "oldest"
