"""
What `tollhouse check` reports of [upstream], [[destinations]] and [[notify]]: what would become of what
is sent there.

An empty export and a question about a billing drop leave nothing behind. A Tollhouse gets the marked call as well: it
counts the call nowhere, and says if it rejects the records of this one. Of all other streams and destinations only the
connection is tried, and they stay unverified.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporters.destinations.catalogue import TYPES, secret_of
from exporters.errors import SendError
from exporters.http.client import Client
from exporters.marked_call import try_call
from exporters.notifications.catalogue import build as build_channel
from exporters.otlp.telemetry import METRICS, TRACES
from exporters.probe import REFUSED, UNAVAILABLE, UNUSED, Probe, failed, try_connection, try_export
from exporters.service.billing_drops import STREAM as BILLING_DROPS
from exporters.service.billing_drops import VALIDATION_STREAM as BILLING_VALIDATION
from exporters.service.billing_drops import try_validation
from exporters.service.events import STREAM as EVENTS
from exporters.service.paths import STREAMS, Paths
from exporters.service.unit_cost import STREAM as UNIT_COST
from exporters.service.upstream_client import Keyring, client_of
from exporters.settings import DestinationSettings, NotifySettings, UpstreamSettings
from spool.clock import Clock
from spool.record import AI_TELEMETRY

# Streams of the table that a gateway sends nothing to: the first two are an agent's.
_NEVER_SENT = ("enroll", "heartbeat", "ping", "insights")


@dataclass(frozen=True, kw_only=True)
class StreamCheck:
    stream: str
    scope: str
    key: str | None  # the name of the key that covers it
    url: str | None
    published: bool  # the address is one that the service publishes
    status: str  # of a Probe; without a key the stream would be parked
    words: str | None = None  # of the upstream, or why nothing was sent


@dataclass(frozen=True, kw_only=True)
class DestinationCheck:
    name: str
    type: str
    topics: Sequence[str]
    to: str  # the file, or the address without its path, which may hold a secret
    status: str  # of a Probe
    words: str | None = None


@dataclass(frozen=True, kw_only=True)
class ChannelCheck:
    name: str
    type: str
    to: str  # the server, without the path, which may hold a secret; empty where a file holds the address
    status: str  # of a Probe
    words: str | None = None


async def check(
    settings: UpstreamSettings, *, clock: Clock, used: Collection[str] = (), send: bool = False
) -> Sequence[StreamCheck]:
    """
    Check each stream in use, in the order of the table; none if there is no upstream.

    In use are AI telemetry, what a key or a setting of [upstream] is for, and what `used` names. `send`: the marked
    call goes to an upstream that is no Tollhouse as well.
    """
    if not (settings.base_url or settings.ai_telemetry_url):
        return []
    paths = Paths(settings)
    keyring = Keyring(settings.keys)
    async with client_of(settings, clock=clock) as client:
        return [
            await _check(stream, settings, paths, keyring, client, clock, send)
            for stream in STREAMS
            if stream in used or _is_used(stream, settings, keyring)
        ]


async def check_destinations(
    destinations: Sequence[DestinationSettings],
    *,
    clock: Clock,
    installation: str | None = None,
    send: bool = False,
) -> Sequence[DestinationCheck]:
    """
    Check each of [[destinations]], in their order. `installation` is the public id of who asks, if it is known; `send`
    as of `check`.
    """
    return [await _check_destination(settings, clock, installation, send) for settings in destinations]


async def check_channels(channels: Sequence[NotifySettings], *, clock: Clock) -> Sequence[ChannelCheck]:
    """One line for each of [[notify]], in their order. Nobody is told anything."""
    return [await _check_channel(settings, clock) for settings in channels]


async def _check_channel(settings: NotifySettings, clock: Clock) -> ChannelCheck:
    channel = build_channel(settings, clock)
    try:
        found = await _found(channel.probe())
    finally:
        await channel.close()
    to = settings.server or (_origin(settings.url) if settings.url else "")
    return ChannelCheck(name=settings.name, type=settings.type, to=to, status=found.status, words=found.words)


async def _found(probe: Awaitable[Probe]) -> Probe:
    """Await a probe. One that fails inside of Tollhouse must not keep the others from running."""
    try:
        return await probe
    except Exception as error:  # noqa: BLE001 - its text may hold a secret, so only its kind is shown
        return Probe(status=UNAVAILABLE, words=f"fault: {type(error).__name__}")


def _is_used(stream: str, settings: UpstreamSettings, keyring: Keyring) -> bool:
    if stream in _NEVER_SENT:
        return False
    if stream == BILLING_VALIDATION:  # without a key drops are validated here
        return keyring.covering(STREAMS[stream].scope) is not None
    named = stream in settings.paths or (stream == BILLING_DROPS and bool(settings.connection_id))
    mapped = stream in (EVENTS, UNIT_COST) and bool(settings.events)
    return STREAMS[stream].telemetry or named or mapped or keyring.covering(STREAMS[stream].scope) is not None


async def _check_destination(
    settings: DestinationSettings, clock: Clock, installation: str | None, send: bool
) -> DestinationCheck:
    type = TYPES[settings.type]
    secret = secret_of(settings)
    if type.probe_of is None:
        by_call = type.probe_by_call if send else None
        found = await _found((by_call or type.probe)(settings, secret, clock))
    else:
        found = await _found(type.probe_of(settings, secret, clock, installation))
    return DestinationCheck(
        name=settings.name,
        type=settings.type,
        topics=settings.topics,
        to=str(settings.path) if settings.path else _origin(settings.url),
        status=found.status,
        words=found.words,
    )


async def check_gateway(url: str, settings: UpstreamSettings, *, clock: Clock) -> DestinationCheck:
    """Try the connection to an agent's gateway. The key is the device's own and known only after it enrolled."""
    async with client_of(settings, clock=clock) as client:
        found = await try_connection(client, url)
    return DestinationCheck(
        name="gateway",
        type="agent",
        topics=(AI_TELEMETRY,),
        to=_origin(url),
        status=found.status,
        words=found.words,
    )


def _origin(url: str) -> str:
    """Return an address without its path, which may hold a secret. Brokers, HOST:PORT, have none."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


async def _check(
    stream: str,
    settings: UpstreamSettings,
    paths: Paths,
    keyring: Keyring,
    client: Client,
    clock: Clock,
    send: bool,
) -> StreamCheck:
    # Mapped events leave as unit cost, under its key.
    sent_as = UNIT_COST if stream == EVENTS and _is_mapped(settings, paths) else stream
    scope = STREAMS[sent_as].scope
    key = keyring.covering(scope)
    unused = _why_unused(stream, settings, paths)
    probe = (
        Probe(status=UNUSED, words=unused)
        if unused
        else await _found(_probe(sent_as, paths, keyring, client, clock, send))
    )
    words = probe.words
    if sent_as != stream and not unused and key:
        types = ", ".join(sorted(settings.events))
        words = f"events of the types {types} become unit cost; other types are kept and not sent"
    return StreamCheck(
        stream=stream,
        scope=scope,
        key=key.settings.name if key else None,
        url=paths.template(sent_as),
        published=paths.published(sent_as),
        status=probe.status,
        words=words,
    )


def _is_mapped(settings: UpstreamSettings, paths: Paths) -> bool:
    return bool(settings.events) and paths.template(EVENTS) is None


def _why_unused(stream: str, settings: UpstreamSettings, paths: Paths) -> str | None:
    """Why nothing is sent to a stream, whatever key covers it; None if something may be."""
    if not STREAMS[stream].telemetry and not settings.base_url:
        return "upstream.base_url is empty"
    if stream == EVENTS and paths.template(EVENTS) is None and not settings.events:
        return "it has no path and no type in upstream.events: usage events are kept here for spool.retention"
    if STREAMS[stream].telemetry and paths.template(stream) is None:
        return "its path is empty: its records are not sent, and counted as unmapped"
    return None


async def _probe(
    stream: str, paths: Paths, keyring: Keyring, client: Client, clock: Clock, send: bool
) -> Probe:
    url = paths.url(stream) if stream == BILLING_VALIDATION else paths.template(stream)
    try:
        secret = keyring.secret_for(STREAMS[stream].scope)
    except SendError as error:
        return failed(error)
    if url is None:
        return Probe(status=REFUSED, words="its path is empty")
    if stream == BILLING_VALIDATION:
        return await try_validation(client, url, authorization=secret)
    if stream not in (TRACES, METRICS):
        return await try_connection(client, url)
    if stream == TRACES:
        return await try_call(client, url, clock=clock, authorization=secret, send=send)
    return await try_export(client, url, authorization=secret)
