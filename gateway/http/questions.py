"""
Turns for questions that take much memory and processor time: one at a time for each person or key, a few for all.

Nobody who asks much makes others wait longer than one question takes, and what all of them hold at once is bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from aiohttp import web

from gateway.http.answers import Pieces, encoded, give
from gateway.service.configuration.sections import AnswerSettings
from gateway.service.errors import Refusal
from spool.ledger.queries import QuestionLimit, limited, took_too_long

T = TypeVar("T")
R = TypeVar("R")
Answer: TypeAlias = "web.StreamResponse | Mapping[str, object] | Pieces"

RETRY_S = 5
RECOUNT = "recount"


@dataclass(slots=True)
class _Asker:
    """A person or a key with questions: `count` of them, one of which has the turn."""

    count: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Questions:
    """`settings` is asked at every question, so that a reload counts."""

    def __init__(self, settings: Callable[[], AnswerSettings]) -> None:
        self._settings = settings
        self._askers: dict[str, _Asker] = {}
        self._working = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    async def until_idle(self) -> None:
        """Wait for a moment in which no answer is in memory, and none is asked for."""
        await self._idle.wait()

    async def answer(
        self, who: str, work: Callable[[], Awaitable[T]], send: Callable[[T], Awaitable[R]]
    ) -> R:
        """
        Work a question out and send its answer, in turn.

        The turn of `who` lasts until the answer is sent, because it is in memory so long; a reader that is slow
        keeps nobody else waiting. Refusal 429 for too many that wait, AskedTooMuch for one that takes too long.
        """
        section = self._settings()
        async with self._turn_of(who, section):
            async with self._place(section):
                answer = await _in_time(work, section)
            return await send(answer)

    async def give(
        self,
        who: str,
        request: web.Request,
        work: Callable[[], Awaitable[Answer]],
        *,
        status: int,
        headers: Mapping[str, str] | None = None,
    ) -> web.StreamResponse:
        """Work out what a handler answers, make it bytes and send it, in turn."""

        async def work_and_encode() -> Answer:
            return await encoded(await work(), status=status, headers=headers)

        async def send(answer: Answer) -> web.StreamResponse:
            return await give(request, answer, status=status, headers=headers)

        return await self.answer(who, work_and_encode, send)

    async def recount(self, who: str, work: Callable[[], Awaitable[T]]) -> T:
        """
        Recount what is kept: one at a time of all, of each person one that waits before the others of that person.

        It may take minutes, so it has a turn of its own beside that of `who` for questions, no place among
        them, and answers.max_time is how long it waits alone.
        """
        section = self._settings()
        async with self._turn_of(f"{RECOUNT} of {who}", section), self._turn_of(RECOUNT, section):
            return await work()

    @asynccontextmanager
    async def _turn_of(self, who: str, section: AnswerSettings) -> AsyncIterator[None]:
        asker = self._askers.setdefault(who, _Asker())
        if asker.count > section.max_waiting:
            raise _busy(f"{section.max_waiting} of your questions wait already (answers.max_waiting)")
        asker.count += 1
        self._idle.clear()
        try:
            await _waiting(asker.turn.acquire(), section)
            try:
                yield
            finally:
                asker.turn.release()
        finally:
            asker.count -= 1
            if not asker.count:
                del self._askers[who]
            if not self._askers:
                self._idle.set()

    @asynccontextmanager
    async def _place(self, section: AnswerSettings) -> AsyncIterator[None]:
        await _waiting(self._take(section.at_once), section)
        try:
            yield
        finally:
            self._leave()

    async def _take(self, most: int) -> None:
        """Wait for one of the places, in the order of coming."""
        if self._working < most and not self._queue:
            self._working += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place in self._queue:
                self._queue.remove(place)
            elif not place.cancelled():  # it was given at the same moment
                self._leave()
            raise

    def _leave(self) -> None:
        self._working -= 1
        most = self._settings().at_once
        while self._queue and self._working < most:
            place = self._queue.popleft()
            if not place.done():
                self._working += 1
                place.set_result(None)


async def _waiting(turn: Awaitable[object], section: AnswerSettings) -> None:
    try:
        async with asyncio.timeout(section.max_time):
            await turn
    except TimeoutError:
        raise _busy(f"the turn of this question did not come within {section.max_time:g} s") from None


async def _in_time(work: Callable[[], Awaitable[T]], section: AnswerSettings) -> T:
    until = time.monotonic() + section.max_time
    limit = QuestionLimit(max_rows=section.max_summed_rows, until=until, max_time_s=section.max_time)
    allowed = asyncio.timeout(section.max_time)
    try:
        with limited(limit):
            async with allowed:
                return await work()
    except TimeoutError:
        if allowed.expired():
            raise took_too_long(section.max_time) from None
        raise


def _busy(why: str) -> Refusal:
    message = f"{why}: large questions are answered one at a time, a few for all; repeat shortly"
    return Refusal(429, "busy", message, retry_after_s=RETRY_S)
