"""
The path of each stream of the cost service: one table, overridable by `[upstream.paths]`; and what [upstream] must
hold. It imports nothing that sends, because every command checks its configuration.

What the service does not publish defaults to a Tollhouse's own addresses, so that two gateways
chain without settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from exporters.errors import Misconfigured
from exporters.problems import MAX_STREAM_KEYS, one_of, stream_name, url
from exporters.settings import EventStream, UpstreamKey, UpstreamSettings
from spool.registry import scopes
from spool.registry.scopes import SCOPES, USE_CASES

UPSTREAM = "upstream"


@dataclass(frozen=True, kw_only=True)
class StreamEndpoint:
    path: str  # "" means that nothing is sent there
    scope: str
    published: bool = True  # by the service; else it is a Tollhouse's path
    telemetry: bool = False  # hangs at upstream.ai_telemetry_url
    at_tollhouse: str = ""  # where another Tollhouse has it, when the service has it nowhere

    @property
    def tollhouse(self) -> str:
        return self.at_tollhouse or self.path


_RECORDS = "unit-cost_v1:manage_telemetry_records"

STREAMS: dict[str, StreamEndpoint] = {
    "traces": StreamEndpoint(path="/v1/traces", scope=scopes.INGEST, published=False, telemetry=True),
    "metrics": StreamEndpoint(path="/v1/metrics", scope=scopes.INGEST, published=False, telemetry=True),
    "enroll": StreamEndpoint(path="/v1/ai-control-plane/enroll", scope=scopes.ENROLL, published=False),
    "heartbeat": StreamEndpoint(
        path="/v1/ai-control-plane/heartbeat",
        scope=scopes.HEARTBEAT,
        published=False,
    ),
    "ping": StreamEndpoint(path="/v1/ai-control-plane/ping", scope=scopes.PING, published=False),
    "usage-events": StreamEndpoint(
        path="",
        scope=scopes.CREATE_EVENT,
        published=False,
        at_tollhouse="/v1/events",
    ),
    "unit-cost": StreamEndpoint(path="/unit-cost/v1/telemetry/{kind}/{stream}/{operation}", scope=_RECORDS),
    "unit-cost-streams": StreamEndpoint(
        path="/unit-cost/v1/telemetry/{stream}", scope="unit-cost_v1:delete_telemetry_stream"
    ),
    "billing-drops": StreamEndpoint(
        path="/v2/connections/billing/{segment}/{connection_id}/billing_drops", scope=scopes.BILLING_DROP
    ),
    "billing-validation": StreamEndpoint(
        path="/v2/connections/billing/{segment}/validate_billing_drop", scope=scopes.VALIDATE_BILLING_DROP
    ),
    "container-upload": StreamEndpoint(
        path="/v1/container-metrics/upload", scope=scopes.UPLOAD_CONTAINER_FILES
    ),
    "container-abandon": StreamEndpoint(
        path="/v1/container-metrics/abandon", scope=scopes.ABANDON_CONTAINER_FILES
    ),
    "container-status": StreamEndpoint(path="/v1/container-metrics/status", scope=scopes.CONTAINER_STATUS),
    "container-legacy": StreamEndpoint(path="/v1/container-metrics", scope=scopes.REMOTE_WRITE_CONTAINERS),
    "insights": StreamEndpoint(path="/v2/insights", scope="insights:read_insights"),
}


class Paths:
    def __init__(self, settings: UpstreamSettings) -> None:
        self._settings = settings

    def url(self, name: str, /, **parts: str) -> str | None:
        """
        The address of a stream, its placeholders filled; None when its path is empty.

        A path of the configuration may be a whole URL.
        """
        address = self.template(name)
        if address is None:
            return None
        settings = self._settings
        given = {"segment": settings.billing_segment, "connection_id": settings.connection_id, **parts}
        return address.format_map({part: quote(value, safe="") for part, value in given.items()})

    def needed(self, name: str, /, **parts: str) -> str:
        """Return the URL of a path; Misconfigured if the path is empty, so that records wait for the operator."""
        url = self.url(name, **parts)
        if url is None:
            raise Misconfigured(f"the path of {name} is empty", answered=False)
        return url

    def template(self, name: str) -> str | None:
        """Return the URL of a path with its placeholders left in place."""
        settings = self._settings
        stream = STREAMS[name]
        path = settings.paths.get(name, stream.tollhouse if settings.kind == "tollhouse" else stream.path)
        if not path or path.startswith(("http://", "https://")):
            return path or None
        base = (stream.telemetry and settings.ai_telemetry_url) or settings.base_url
        return f"{base.rstrip('/')}/{path.lstrip('/')}"

    def published(self, name: str) -> bool:
        """True if the address is the service's published one, not a default or the operator's choice."""
        return STREAMS[name].published and name not in self._settings.paths


def problems(settings: UpstreamSettings) -> Iterator[str]:
    """Every reason why [upstream] cannot work, one sentence a problem."""
    if settings.keys and not settings.base_url:
        yield "upstream.base_url is required when upstream.keys are given"
    for name in ("base_url", "ai_telemetry_url", "proxy"):
        yield from url(f"upstream.{name}", getattr(settings, name))
    for type, event in settings.events.items():
        yield from _event_problems(f"upstream.events.{type}", event)
    if settings.timeout <= 0:
        yield "upstream.timeout must be above 0s"
    for name in sorted(settings.paths.keys() - STREAMS.keys()):
        yield f"upstream.paths: there is no stream {name!r}, only {', '.join(STREAMS)}"
    names: set[str] = set()
    for place, key in enumerate(settings.keys):
        yield from _key_problems(f"upstream.keys[{place}]", key, names)
        names.add(key.name)


def _event_problems(shown: str, event: EventStream) -> Iterator[str]:
    yield from stream_name(f"{shown}.stream", event.stream)
    if len(event.dimensions) > MAX_STREAM_KEYS:
        yield f"{shown}.dimensions must be at most {MAX_STREAM_KEYS}"


def _key_problems(shown: str, key: UpstreamKey, names: set[str]) -> Iterator[str]:
    if not key.name:
        yield f"{shown}.name is required"
    elif key.name in names:
        yield f"{shown}.name {key.name!r} is used twice"
    if bool(key.secret_file) == bool(key.secret_env):
        yield f"{shown} needs secret_file or secret_env, and not both"
    if bool(key.use_cases) == bool(key.scopes):
        yield f"{shown} needs use_cases or scopes, never both"
    for scope in key.scopes:
        yield from one_of(f"{shown}.scopes", scope, tuple(sorted(SCOPES)))
    for use_case in key.use_cases:
        yield from one_of(f"{shown}.use_cases", use_case, tuple(USE_CASES))
