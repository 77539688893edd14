"""
Answers that go on: server-sent events, for as long as somebody listens and may.

Their number is bounded, that of each person too: the oldest of whoever has the most ends for a new one. One
ends when its reader is gone or reads nothing for SLOW_S, when it may no longer listen, and at a stop of the
server, which it never holds up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain

import orjson
from aiohttp import web

from gateway.service.errors import Refusal
from spool.errors import SpoolError

TICK_S = 0.5  # between two looks for news, which are cheap
COMMENT_S = 15.0  # proxies close what is silent
ALLOWED_S = 5.0  # between two looks whether the reader may still listen
SLOW_S = 30.0
RETRY_MS = 5000  # after which a browser comes back
CROWDED_MS = 60_000  # and one whose stream ended for a newer one: else pages take turns without an end
PER_PERSON = 8

News = Callable[[], Awaitable[Iterable[bytes]]]  # what happened since the last call, as events
MayListen = Callable[[], Awaitable[bool]]
EVENT_STREAM = "text/event-stream"


def event(name: str, data: object) -> bytes:
    """Format one event with its data as JSON, which holds no line break."""
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


class EventStreams:
    """All event streams of one process."""

    def __init__(self, limit: int, per_person: int = PER_PERSON) -> None:
        self.limit = limit
        self.per_person = per_person
        self._is_stopping = False
        self._by_person: dict[str, list[asyncio.Event]] = {}  # set to end one; the oldest first

    @property
    def count(self) -> int:
        return sum(map(len, self._by_person.values()))

    def end(self) -> None:
        """End all of them, and each that begins."""
        self._is_stopping = True
        for ending in chain.from_iterable(self._by_person.values()):
            ending.set()

    async def serve(
        self, request: web.Request, news: News, may_listen: MayListen, *, person: str
    ) -> web.StreamResponse:
        """
        Answer with events until the stream ends. It ends the person's oldest beyond `per_person`; beyond the
        limit, the oldest of who has the most. Refusal 503 if nobody has more than the person would have.
        """
        self._make_room(person)
        ending = asyncio.Event()
        if self._is_stopping:
            ending.set()
        self._by_person.setdefault(person, []).append(ending)
        try:
            return await self._serve(request, news, may_listen, ending)
        finally:
            self._forget(person, ending)

    def _make_room(self, person: str) -> None:
        own = len(self._by_person.get(person, ()))
        if own >= self.per_person:
            self._end_oldest(person)
        elif self.count >= self.limit:
            most = max(self._by_person, key=lambda name: len(self._by_person[name]))
            if len(self._by_person[most]) <= own + 1:
                most = person
            if not own and most == person:
                message = (
                    f"{self.limit} event streams are open (server.max_event_streams): close a page of the "
                    "console or a"
                    " `tollhouse tail`"
                )
                raise Refusal(503, "too_many_event_streams", message, retry_after_s=RETRY_MS // 1000)
            self._end_oldest(most)

    def _end_oldest(self, person: str) -> None:
        oldest = self._by_person[person][0]
        oldest.set()
        self._forget(person, oldest)

    def _forget(self, person: str, ending: asyncio.Event) -> None:
        streams = self._by_person.get(person, [])
        if ending in streams:
            streams.remove(ending)
            if not streams:
                del self._by_person[person]

    async def _serve(
        self, request: web.Request, news: News, may_listen: MayListen, ending: asyncio.Event
    ) -> web.StreamResponse:
        headers = {
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Content-Type-Options": "nosniff",
        }
        response = web.StreamResponse(headers={**headers, "Content-Type": EVENT_STREAM})
        # The reader is gone or stands still, or there is nothing to read from: it comes back, and is told
        # why.
        with contextlib.suppress(ConnectionError, TimeoutError, SpoolError):
            await response.prepare(request)
            await self._write(response, b"retry: %d\n\n" % RETRY_MS)
            await self._follow(request, response, news, may_listen, ending)
            if ending.is_set() and not self._is_stopping:
                await self._write(response, b"retry: %d\n\n" % CROWDED_MS)
        response.force_close()
        return response

    async def _follow(
        self,
        request: web.Request,
        response: web.StreamResponse,
        news: News,
        may_listen: MayListen,
        ending: asyncio.Event,
    ) -> None:
        clock = asyncio.get_running_loop().time
        comment_at = clock() + COMMENT_S
        allowed_at = clock() + ALLOWED_S
        while not ending.is_set() and request.transport is not None:
            if clock() >= allowed_at:
                if not await may_listen():
                    return
                allowed_at = clock() + ALLOWED_S
            data = b"".join(await news())
            if not data and clock() >= comment_at:
                data = b":\n\n"
            if data:
                await self._write(response, data)
                comment_at = clock() + COMMENT_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await ending.wait()

    @staticmethod
    async def _write(response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(SLOW_S):
            await response.write(data)
