"""
Server-sent events. The number of open streams is limited in total and by person.

At the limit, a new stream ends the oldest one of the person with the most. A stream also ends if its reader
disconnects, reads nothing for SLOW_S or loses the permission, and when the server stops. A stream never
delays the stop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain

import orjson
from aiohttp import web

from gateway.core.errors import Refusal
from spool.errors import SpoolError

TICK_S = 0.5  # seconds between checks for new events
COMMENT_S = 15.0  # seconds between comments, which stop proxies from closing a silent connection
ALLOWED_S = 5.0  # seconds between permission checks while nothing happens
SLOW_S = 30.0
RETRY_MS = 5000  # milliseconds until a browser reconnects
# milliseconds until a browser reconnects a stream that a newer stream ended; with a short delay, two pages
# would end each other's streams forever
CROWDED_MS = 60_000
PER_PERSON = 8

# function that returns the events since the previous call
NextEvents = Callable[[], Awaitable[Iterable[bytes]]]
MayListen = Callable[[], Awaitable[bool]]
EVENT_STREAM = "text/event-stream"


def encode_event(name: str, data: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


class EventStreams:
    def __init__(self, limit: int, per_person: int = PER_PERSON) -> None:
        self.limit = limit
        self.per_person = per_person
        self._is_stopping = False
        # oldest first; setting an event ends the stream
        self._by_person: dict[str, list[asyncio.Event]] = {}

    @property
    def count(self) -> int:
        return sum(map(len, self._by_person.values()))

    def end_all(self) -> None:
        self._is_stopping = True
        for ending in chain.from_iterable(self._by_person.values()):
            ending.set()

    async def serve_event_stream(
        self, request: web.Request, news: NextEvents, may_listen: MayListen, *, person: str
    ) -> web.StreamResponse:
        """
        Send events until the stream ends. Beyond `per_person` streams, the person's oldest stream ends. At
        the total limit, the oldest stream of the person with the most streams ends. If no other person has
        clearly more streams, the person's own oldest stream ends. Raises Refusal 503 if the person has no
        stream to end.
        """
        self._end_stream_if_full(person)
        ending = asyncio.Event()
        if self._is_stopping:
            ending.set()
        self._by_person.setdefault(person, []).append(ending)
        try:
            return await self._open_and_follow(request, news, may_listen, ending)
        finally:
            self._remove_stream(person, ending)

    def _end_stream_if_full(self, person: str) -> None:
        own_count = len(self._by_person.get(person, ()))
        if own_count >= self.per_person:
            self._end_oldest(person)
        elif self.count >= self.limit:
            busiest_person = max(self._by_person, key=lambda name: len(self._by_person[name]))
            if len(self._by_person[busiest_person]) <= own_count + 1:
                busiest_person = person
            if not own_count and busiest_person == person:
                message = (
                    f"{self.limit} event streams are open (server.max_event_streams). Close a page of "
                    "the console or stop a `tollhouse tail`."
                )
                raise Refusal(503, "too_many_event_streams", message, retry_after_s=RETRY_MS // 1000)
            self._end_oldest(busiest_person)

    def _end_oldest(self, person: str) -> None:
        oldest = self._by_person[person][0]
        oldest.set()
        self._remove_stream(person, oldest)

    def _remove_stream(self, person: str, ending: asyncio.Event) -> None:
        streams = self._by_person.get(person, [])
        if ending in streams:
            streams.remove(ending)
            if not streams:
                del self._by_person[person]

    async def _open_and_follow(
        self, request: web.Request, news: NextEvents, may_listen: MayListen, ending: asyncio.Event
    ) -> web.StreamResponse:
        headers = {
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Content-Type-Options": "nosniff",
        }
        response = web.StreamResponse(headers={**headers, "Content-Type": EVENT_STREAM})
        # the client then reconnects and gets the reason
        with contextlib.suppress(ConnectionError, TimeoutError, SpoolError):
            await response.prepare(request)
            await self._write_in_time(response, b"retry: %d\n\n" % RETRY_MS)
            await self._send_until_end(request, response, news, may_listen, ending)
            if ending.is_set() and not self._is_stopping:
                await self._write_in_time(response, b"retry: %d\n\n" % CROWDED_MS)
        response.force_close()
        return response

    async def _send_until_end(
        self,
        request: web.Request,
        response: web.StreamResponse,
        news: NextEvents,
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
            if (
                data and not await may_listen()
            ):  # a right that was taken ends the stream before the next event
                return
            if not data and clock() >= comment_at:
                data = b":\n\n"
            if data:
                await self._write_in_time(response, data)
                comment_at = clock() + COMMENT_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await ending.wait()

    @staticmethod
    async def _write_in_time(response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(SLOW_S):
            await response.write(data)
