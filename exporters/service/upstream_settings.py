"""What [upstream] must hold. It imports nothing that sends: every command checks its configuration."""

from __future__ import annotations

from collections.abc import Iterator

from exporters.problems import MAX_STREAM_KEYS, one_of, stream_name, url
from exporters.service.paths import STREAMS
from exporters.settings import EventStream, UpstreamKey, UpstreamSettings
from spool.registry.scopes import SCOPES, USE_CASES

UPSTREAM = "upstream"


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
