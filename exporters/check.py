"""
What `tollhouse check` reports on the upstream: which key covers which stream, and whether it takes an empty
export.

An empty export is the only request that leaves nothing behind, so streams other than OTLP stay unverified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exporters.errors import SendError
from exporters.http.client import Client
from exporters.keyring import Keyring
from exporters.otlp.telemetry import CONTENT_TYPE, METRICS, TRACES
from exporters.service.paths import STREAMS, Paths
from exporters.service.upstream_client import client_of
from exporters.settings import UpstreamSettings
from spool.clock import Clock

OK, REFUSED, UNVERIFIED = "ok", "refused", "unverified"


@dataclass(frozen=True, kw_only=True)
class StreamCheck:
    stream: str
    scope: str
    key: str | None  # the name of the key that covers it; None: the stream would be parked
    url: str | None
    published: bool  # the address is one that the service publishes
    status: str  # ok, refused or unverified
    words: str | None = None  # of the upstream, or why nothing was sent


async def check(settings: UpstreamSettings, *, clock: Clock) -> Sequence[StreamCheck]:
    """One line for each stream, in the order of the table; nothing when there is no upstream."""
    if not (settings.base_url or settings.ai_telemetry_url):
        return []
    paths, keyring = Paths(settings), Keyring(settings.keys)
    async with client_of(settings, clock=clock) as client:
        return [await _check(stream, paths, keyring, client) for stream in STREAMS]


async def _check(stream: str, paths: Paths, keyring: Keyring, client: Client) -> StreamCheck:
    scope = STREAMS[stream].scope
    key = keyring.covering(scope)
    status, words = await _probe(stream, paths, keyring, client)
    return StreamCheck(
        stream=stream,
        scope=scope,
        key=key.settings.name if key else None,
        url=paths.template(stream),
        published=paths.published(stream),
        status=status,
        words=words,
    )


async def _probe(stream: str, paths: Paths, keyring: Keyring, client: Client) -> tuple[str, str | None]:
    url = paths.template(stream)
    try:
        secret = keyring.secret_for(STREAMS[stream].scope)
        if url is None:
            return UNVERIFIED, "its path is empty: nothing is sent there"
        if stream not in (TRACES, METRICS):
            return UNVERIFIED, "there is no request that leaves nothing behind"
        await client.send(url, b"", content_type=CONTENT_TYPE, authorization=secret)
    except SendError as error:
        return REFUSED, str(error)
    return OK, None
