"""
Long jobs run in slices, so that others get their turn in between, those of large bodies on a thread; and turns for
questions that take much memory and processor time: one at a time for each person or key, a few for all.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from aiohttp import web

from gateway.http.answers import Pieces, encoded, give
from gateway.service.configuration.sections import AnswerSettings
from gateway.service.errors import Refusal
from spool.ledger.queries import QuestionLimit, limited, took_too_long
from spool.turns.fair_turns import ALONE_S, Party, current_work, others_are_there, pause_when_due
from spool.turns.threads import lower_priority

T = TypeVar("T")
LARGE: Final = 256 * 1024  # bytes of a body that is read on the thread
STINT_S: Final = 0.02  # of the thread for one body, while nobody waits who used less
# One for all: it is done with one slice before the memory of the next.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="large-bodies", initializer=lower_priority)
R = TypeVar("R")
Answer: TypeAlias = "web.StreamResponse | Mapping[str, object] | Pieces"
RETRY_S = 5
RECOUNT = "recount"


async def drive(work: Generator[None, None, T]) -> T:
    """Run a job slice by slice and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await pause_when_due()


async def drive_aside(
    make: Callable[[Callable[[int], None]], Generator[None, None, T]],
    take: Callable[[int], None],
    *,
    size: int,
) -> T:
    """
    Run the job that `make` returns, of a body of so many bytes: on the thread if that is large or does not
    end soon, which is at once where others are there.

    What the job says that it holds, by calling what `make` is given, is taken by the event loop after each slice.
    """
    held: list[int] = []
    work = make(held.append)
    results: list[T] = []
    is_large = size > LARGE
    until = time.perf_counter() + ALONE_S
    while not results:
        if is_large:
            await _on_thread(lambda party: _stint(work, results, held, party))
        else:
            _step(work, results)
        # What needs several slices may hold more than it weighs. But requests that are read in one pass of the
        # event loop share a commit, and from the thread they come one after the other.
        is_large = is_large or others_are_there() or time.perf_counter() > until
        if held:
            take(sum(held))
            held.clear()
    return results[0]


async def aside(job: Callable[[], T], *, is_large: bool) -> T:
    """The result of a job that touches nothing of the event loop's; on the thread if it is large."""
    return await _on_thread(lambda _: job()) if is_large else job()


async def _on_thread(job: Callable[[Party | None], T]) -> T:
    loop, work = asyncio.get_running_loop(), current_work()
    if work is None:
        return await loop.run_in_executor(_THREAD, job, None)
    async with work.aside() as party:
        return await loop.run_in_executor(_THREAD, _charged, job, party)


def _charged(job: Callable[[Party | None], T], party: Party) -> T:
    began = time.thread_time()
    try:
        return job(party)
    finally:
        party.spend(time.thread_time() - began)


def _stint(work: Generator[None, None, T], results: list[T], held: list[int], party: Party | None) -> None:
    """Slices until somebody is waiting who used less."""
    until = time.perf_counter() + STINT_S
    while not results and not held:
        _step(work, results)
        if party is None or party.turns.is_wanted or time.perf_counter() > until:
            return


def _step(work: Generator[None, None, T], results: list[T]) -> None:
    try:
        next(work)
    except StopIteration as done:
        results.append(done.value)


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
        """Wait until no answer is in memory and nobody waits for one."""
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
