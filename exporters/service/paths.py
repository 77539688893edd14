"""
The paths of the cost service's streams, which `[upstream.paths]` can replace, and the checks of [upstream].

This module imports nothing that sends, because every command checks its configuration. A stream that the
service does not document uses Tollhouse's own path, so that two gateways work together without settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from exporters.errors import Misconfigured
from exporters.problems import MAX_STREAM_KEYS, problems_of_choice, problems_of_stream_name, problems_of_url
from exporters.settings import EventStream, UpstreamKey, UpstreamSettings
from spool.registry import scopes
from spool.registry.scopes import SCOPES, USE_CASES

UPSTREAM = "upstream"


@dataclass(frozen=True, kw_only=True)
class StreamEndpoint:
    path: str  # "" if nothing is sent to the stream
    scope: str
    published: bool = True  # whether the service documents the path; otherwise the path is Tollhouse's own
    telemetry: bool = False  # whether the path is relative to upstream.ai_telemetry_url
    only_tollhouse: bool = False  # whether a cost service has no such stream
    at_tollhouse: str = ""  # path at another Tollhouse, if the service has no such path

    @property
    def tollhouse_path(self) -> str:
        return self.at_tollhouse or self.path


_RECORDS = "unit-cost_v1:manage_telemetry_records"

STREAMS: dict[str, StreamEndpoint] = {
    "traces": StreamEndpoint(path="/v1/traces", scope=scopes.INGEST, published=False, telemetry=True),
    "metrics": StreamEndpoint(path="/v1/metrics", scope=scopes.INGEST, published=False, telemetry=True),
    "enroll": StreamEndpoint(path="/v1/ai-control-plane/enroll", scope=scopes.ENROLL, published=False),
    "heartbeat": StreamEndpoint(
        path="/v1/ai-control-plane/heartbeat", scope=scopes.HEARTBEAT, published=False
    ),
    "ping": StreamEndpoint(path="/v1/ai-control-plane/ping", scope=scopes.PING, published=False),
    "people-addresses": StreamEndpoint(
        path="/v1/ai-control-plane/people/addresses",
        scope=scopes.INGEST,
        published=False,
        only_tollhouse=True,
    ),
    "people-erasures": StreamEndpoint(
        path="/v1/ai-control-plane/people/erasures", scope=scopes.INGEST, published=False, only_tollhouse=True
    ),
    "usage-events": StreamEndpoint(
        path="", scope=scopes.CREATE_EVENT, published=False, at_tollhouse="/v1/events"
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


class UpstreamPaths:
    def __init__(self, settings: UpstreamSettings) -> None:
        self._settings = settings

    def url(self, name: str, /, **parts: str) -> str | None:
        """
        Return the address of a stream with its placeholders filled, or None if its path is empty.

        A configured path may be a whole URL.
        """
        address = self.url_template(name)
        if address is None:
            return None
        settings = self._settings
        address_parts = {
            "segment": settings.billing_segment,
            "connection_id": settings.connection_id,
            **parts,
        }
        return address.format_map({part: quote(value, safe="") for part, value in address_parts.items()})

    def required_url(self, name: str, /, **parts: str) -> str:
        """
        Return a stream's address. Raises Misconfigured if its path is empty. The records then wait for the
        operator.
        """
        url = self.url(name, **parts)
        if url is None:
            raise Misconfigured(f"the path of the stream {name} is empty", answered=False)
        return url

    def url_template(self, name: str) -> str | None:
        settings = self._settings
        stream = STREAMS[name]
        path = settings.paths.get(
            name, stream.tollhouse_path if settings.kind == "tollhouse" else stream.path
        )
        if not path or path.startswith(("http://", "https://")):
            return path or None
        base = (stream.telemetry and settings.ai_telemetry_url) or settings.base_url
        return f"{base.rstrip('/')}/{path.lstrip('/')}"

    def has_documented_path(self, name: str) -> bool:
        """
        Return whether the cost service documents the stream's address and the operator has not changed it.
        """
        return STREAMS[name].published and name not in self._settings.paths


def upstream_problems(settings: UpstreamSettings) -> Iterator[str]:
    if settings.keys and not settings.base_url:
        yield "upstream.base_url is required if upstream.keys are set"
    for name in ("base_url", "ai_telemetry_url", "proxy"):
        yield from problems_of_url(f"upstream.{name}", getattr(settings, name))
    for type, event in settings.events.items():
        yield from _event_problems(f"upstream.events.{type}", event)
    if settings.timeout <= 0:
        yield "upstream.timeout must be more than 0s"
    for name in sorted(settings.paths.keys() - STREAMS.keys()):
        yield f"upstream.paths: {name!r} is not a stream; streams are {', '.join(STREAMS)}"
    names: set[str] = set()
    for index, key in enumerate(settings.keys):
        yield from _key_problems(f"upstream.keys[{index}]", key, names)
        names.add(key.name)


def _event_problems(shown_name: str, event: EventStream) -> Iterator[str]:
    yield from problems_of_stream_name(f"{shown_name}.stream", event.stream)
    if len(event.dimensions) > MAX_STREAM_KEYS:
        yield f"{shown_name}.dimensions: at most {MAX_STREAM_KEYS} are allowed"


def _key_problems(shown_name: str, key: UpstreamKey, names: set[str]) -> Iterator[str]:
    if not key.name:
        yield f"{shown_name}.name is required"
    elif key.name in names:
        yield f"{shown_name}.name {key.name!r} is used twice"
    if bool(key.secret_file) == bool(key.secret_env):
        yield f"{shown_name} needs either secret_file or secret_env"
    if bool(key.use_cases) == bool(key.scopes):
        yield f"{shown_name} needs either use_cases or scopes"
    for scope in key.scopes:
        yield from problems_of_choice(f"{shown_name}.scopes", scope, tuple(sorted(SCOPES)))
    for use_case in key.use_cases:
        yield from problems_of_choice(f"{shown_name}.use_cases", use_case, tuple(USE_CASES))
