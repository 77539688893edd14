"""
Checks of [upstream], [[destinations]] and [[notify]] for `tollhouse check`, by an empty export or the
validation of a billing drop, which leave no data at the receiver.

Another Tollhouse also gets the test call, which it does not count; its response says whether it rejects
forwarded records. For all other streams and destinations, only the connection is tested, and the result is
"unverified".
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar
from urllib.parse import urlsplit

from exporters.destinations.catalogue import TYPES, destination_secret
from exporters.destinations.otlp import SIGNALS
from exporters.errors import SendError
from exporters.http.allowed_addresses import address_check_for, problems_of_forbidden_url
from exporters.http.client import ClientSettings, HttpClient
from exporters.marked_call import probe_with_test_call
from exporters.notifications.catalogue import build_channel
from exporters.otlp.telemetry import METRICS, TRACES
from exporters.probe import (
    REFUSED,
    UNAVAILABLE,
    UNUSED,
    Probe,
    error_probe,
    probe_connection,
    probe_with_empty_export,
)
from exporters.problems import problems_of_url as url_problems
from exporters.service.billing_drops import STREAM as BILLING_DROPS
from exporters.service.billing_drops import VALIDATION_STREAM as BILLING_VALIDATION
from exporters.service.billing_drops import probe_validation
from exporters.service.container_metrics import STREAMS as CONTAINER_STREAMS
from exporters.service.container_metrics import TOPIC as CONTAINER_TOPIC
from exporters.service.events import STREAM as EVENTS
from exporters.service.paths import STREAMS, UPSTREAM, UpstreamPaths
from exporters.service.unit_cost import STREAM as UNIT_COST
from exporters.service.upstream_client import Keyring, build_client
from exporters.settings import DestinationSettings, NotifySettings, UpstreamSettings
from spool.clock import Clock
from spool.errors import Invalid
from spool.record import AI_TELEMETRY, BILLING_DATA, USAGE_EVENTS
from spool.record import UNIT_COST as UNIT_COST_TOPIC

TYPED_TIMEOUT_S = 10.0
# only agents send to these streams, so they are checked only if they are in `used_streams`
_NEVER_SENT = ("enroll", "heartbeat", "ping", "insights")
# topics of each stream's routes
_TOPICS = {
    TRACES: (AI_TELEMETRY,),
    METRICS: (AI_TELEMETRY,),
    EVENTS: (USAGE_EVENTS,),
    UNIT_COST: (UNIT_COST_TOPIC, USAGE_EVENTS),
    BILLING_DROPS: (BILLING_DATA, "billing-hours"),
    **dict.fromkeys(CONTAINER_STREAMS, (CONTAINER_TOPIC,)),
}


@dataclass(frozen=True, kw_only=True)
class StreamCheck:
    stream: str
    scope: str
    key: str | None  # name of the key with the scope of the stream
    url: str | None
    published: bool  # whether the cost service documents the address
    status: str  # status of a Probe; without a key, the status that pauses a route
    words: str | None = None  # the upstream's message, or why nothing was sent


@dataclass(frozen=True, kw_only=True)
class DestinationCheck:
    name: str
    type: str
    topics: Sequence[str]
    to: str  # address without the path, which may contain a secret
    status: str  # status of a Probe
    words: str | None = None


AnyCheck = TypeVar("AnyCheck", StreamCheck, DestinationCheck)


@dataclass(frozen=True, kw_only=True)
class ChannelCheck:
    name: str
    type: str
    # address without the path, which may contain a secret; empty if the address is in a file
    to: str
    status: str  # status of a Probe
    words: str | None = None


async def check_streams(
    settings: UpstreamSettings, *, clock: Clock, used_streams: Collection[str] = (), send_call: bool = False
) -> Sequence[StreamCheck]:
    """
    Check the streams in use, in the order of STREAMS.

    AI telemetry is always in use, and other streams if a key or a setting of [upstream] concerns them or
    `used_streams` names them.
    """
    if not (settings.base_url or settings.ai_telemetry_url):
        return []
    paths = UpstreamPaths(settings)
    keyring = Keyring(settings.keys)
    async with build_client(settings, clock=clock) as client:
        return [
            await _check_stream(stream, settings, paths, keyring, client, clock, send_call)
            for stream in STREAMS
            if stream in used_streams or _is_stream_sent(stream, settings, keyring)
        ]


async def check_destinations(
    destinations: Sequence[DestinationSettings],
    *,
    clock: Clock,
    installation: str | None = None,
    send_call: bool = False,
) -> Sequence[DestinationCheck]:
    """Check destinations. `installation`: the public id of this installation."""
    return [await _check_destination(settings, clock, installation, send_call) for settings in destinations]


async def check_channels(channels: Sequence[NotifySettings], *, clock: Clock) -> Sequence[ChannelCheck]:
    return [await _check_channel(settings, clock) for settings in channels]


async def _check_channel(settings: NotifySettings, clock: Clock) -> ChannelCheck:
    channel = build_channel(settings, clock)
    try:
        probe = await _await_probe(channel.probe())
    finally:
        await channel.close()
    to = settings.server or (_url_origin(settings.url) if settings.url else "")
    return ChannelCheck(name=settings.name, type=settings.type, to=to, status=probe.status, words=probe.words)


async def _await_probe(probe: Awaitable[Probe]) -> Probe:
    """Return a probe's result, also if it raises, so that the other probes still run."""
    try:
        return await probe
    except Exception as error:  # noqa: BLE001 - its text may hold a secret, so only its kind is shown
        return Probe(status=UNAVAILABLE, words=f"fault: {type(error).__name__}")


def results_with_stopped_routes(
    streams: Sequence[StreamCheck], destinations: Sequence[DestinationCheck], stopped: Mapping[str, str]
) -> tuple[Sequence[StreamCheck], Sequence[DestinationCheck]]:
    """
    Return the results with the state of stopped routes, which matters more than any test request. `stopped`:
    reasons by route.
    """
    return (
        [
            _result_with_stopped_routes(check, stopped, UPSTREAM, _TOPICS.get(check.stream, ()))
            for check in streams
        ],
        [_result_with_stopped_routes(check, stopped, check.name, check.topics) for check in destinations],
    )


def _result_with_stopped_routes(
    check: AnyCheck, stopped: Mapping[str, str], destination: str, topics: Iterable[str]
) -> AnyCheck:
    names = [name for topic in topics if (name := f"{destination}/{topic}") in stopped]
    if not names:
        return check
    return replace(check, status=REFUSED, words="; ".join(f"route {name}: {stopped[name]}" for name in names))


def _is_stream_sent(stream: str, settings: UpstreamSettings, keyring: Keyring) -> bool:
    if stream in _NEVER_SENT or (STREAMS[stream].only_tollhouse and settings.kind != "tollhouse"):
        return False
    if stream == BILLING_VALIDATION:  # without a key, Tollhouse itself validates the uploaded billing files
        return keyring.key_for(STREAMS[stream].scope) is not None
    is_named = stream in settings.paths or (stream == BILLING_DROPS and bool(settings.connection_id))
    mapped = stream in (EVENTS, UNIT_COST) and bool(settings.events)
    return (
        STREAMS[stream].telemetry or is_named or mapped or keyring.key_for(STREAMS[stream].scope) is not None
    )


async def _check_destination(
    settings: DestinationSettings, clock: Clock, installation: str | None, send_call: bool
) -> DestinationCheck:
    type = TYPES[settings.type]
    secret = destination_secret(settings)
    if type.probe_for_installation is None:
        by_call = type.probe_by_call if send_call else None
        probe = await _await_probe((by_call or type.probe)(settings, secret, clock))
    else:
        probe = await _await_probe(type.probe_for_installation(settings, secret, clock, installation))
    return DestinationCheck(
        name=settings.name,
        type=settings.type,
        topics=settings.topics,
        to=str(settings.path) if settings.path else _url_origin(settings.url),
        status=probe.status,
        words=probe.words,
    )


async def probe_typed_address(kind: str, url: str, secret: str, *, clock: Clock) -> Probe:
    """
    Send an empty export to an address that a person typed, with a key that is not stored. `kind`: `upstream`
    or `otlp`. Raises Invalid unless the console allows the address for channels.
    """
    if not url:
        raise Invalid("url is required")
    if problem := next(chain(url_problems("url", url), problems_of_forbidden_url("url", url)), None):
        raise Invalid(problem)
    of_upstream = UpstreamPaths(UpstreamSettings(base_url=url)).url_template(TRACES)
    address = of_upstream if kind == UPSTREAM else url.rstrip("/") + SIGNALS[TRACES]
    settings = ClientSettings(timeout_s=TYPED_TIMEOUT_S, check=address_check_for(url))
    async with HttpClient(settings, clock=clock) as client:
        return await _await_probe(probe_with_empty_export(client, str(address), authorization=secret or None))


async def check_gateway(url: str, settings: UpstreamSettings, *, clock: Clock) -> DestinationCheck:
    """Check a gateway's address, without the device's own key, which exists only after enrolment."""
    async with build_client(settings, clock=clock) as client:
        probe = await probe_connection(client, url)
    return DestinationCheck(
        name="gateway",
        type="agent",
        topics=(AI_TELEMETRY,),
        to=_url_origin(url),
        status=probe.status,
        words=probe.words,
    )


def _url_origin(url: str) -> str:
    """Return the address without its path, which may contain a secret. A broker's HOST:PORT has no path."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


async def _check_stream(
    stream: str,
    settings: UpstreamSettings,
    paths: UpstreamPaths,
    keyring: Keyring,
    client: HttpClient,
    clock: Clock,
    send_call: bool,
) -> StreamCheck:
    # events that `upstream.events` maps are sent as unit-cost records, with the key for unit cost
    sent_as = (
        UNIT_COST if stream == EVENTS and _are_events_sent_only_as_unit_cost(settings, paths) else stream
    )
    scope = STREAMS[sent_as].scope
    key = keyring.key_for(scope)
    unused = _reason_stream_is_unused(stream, settings, paths)
    probe = (
        Probe(status=UNUSED, words=unused)
        if unused
        else await _await_probe(_probe_stream(sent_as, paths, keyring, client, clock, send_call))
    )
    message = probe.words
    if sent_as != stream and not unused and key:
        types = ", ".join(sorted(settings.events))
        message = f"events of the types {types} become unit cost; other types are stored here and not sent"
    return StreamCheck(
        stream=stream,
        scope=scope,
        key=key.settings.name if key else None,
        url=paths.url_template(sent_as),
        published=paths.has_documented_path(sent_as),
        status=probe.status,
        words=message,
    )


def _are_events_sent_only_as_unit_cost(settings: UpstreamSettings, paths: UpstreamPaths) -> bool:
    return bool(settings.events) and paths.url_template(EVENTS) is None


def _reason_stream_is_unused(stream: str, settings: UpstreamSettings, paths: UpstreamPaths) -> str | None:
    if not STREAMS[stream].telemetry and not settings.base_url:
        return "upstream.base_url is empty"
    if stream == EVENTS and paths.url_template(EVENTS) is None and not settings.events:
        return (
            "no path and no type in upstream.events is set, so usage events are stored here for "
            "spool.retention and not sent"
        )
    if STREAMS[stream].telemetry and paths.url_template(stream) is None:
        return "the path of this stream is empty: its records are not sent, and counted as unmapped"
    return None


async def _probe_stream(
    stream: str, paths: UpstreamPaths, keyring: Keyring, client: HttpClient, clock: Clock, send_call: bool
) -> Probe:
    url = paths.url(stream) if stream == BILLING_VALIDATION else paths.url_template(stream)
    try:
        secret = keyring.secret_for(STREAMS[stream].scope)
    except SendError as error:
        return error_probe(error)
    if url is None:
        return Probe(status=REFUSED, words="its path is empty")
    if stream == BILLING_VALIDATION:
        return await probe_validation(client, url, authorization=secret)
    if stream not in (TRACES, METRICS):
        return await probe_connection(client, url)
    if stream == TRACES:
        return await probe_with_test_call(client, url, clock=clock, authorization=secret, send_call=send_call)
    return await probe_with_empty_export(client, url, authorization=secret)
