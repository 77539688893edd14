"""
Fair turns for long work.

Long jobs run in slices, and those of large bodies on a thread. Queries that need much memory and time wait,
so that each person or key runs one at a time, and all together a few.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from aiohttp import web

from gateway.configuration.server import AnswerSettings
from gateway.core.errors import Refusal
from gateway.http.answers import AnswerInPieces, encode_in_thread, send_answer
from spool.turns.fair_turns import (
    ALONE_S,
    FairTurnParty,
    current_work,
    has_other_active_parties,
    pause_if_step_was_long,
)
from spool.turns.question_limit import QuestionLimit, apply_limit, too_long_error
from spool.turns.threads import lower_priority

T = TypeVar("T")
LARGE: Final = 256 * 1024  # bytes; a larger body is decoded on the thread
# maximum seconds of work without a pause; a lighter party that waits gets its turn earlier
STINT_S: Final = 0.02
# one thread for all large bodies, so that only one slice needs memory at a time
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="large-bodies", initializer=lower_priority)
R = TypeVar("R")
HandlerAnswer: TypeAlias = "web.StreamResponse | Mapping[str, object] | AnswerInPieces"
RETRY_S = 5
RECOUNT, EXPORT = "recount", "export"


class RunQuery(Protocol):
    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T: ...


async def run_with_pauses(work: Generator[None, None, T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await pause_if_step_was_long()


class EventLoopJobBatch:
    """
    Short jobs that arrive in one pass of the event loop, run directly one after another.

    A job takes a quarter less time after a job of the same kind, because the CPU caches still have its code
    and tables.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Generator[None, None, Any], asyncio.Future[Any], FairTurnParty | None]] = (
            deque()
        )

    def run(self, job: Generator[None, None, T]) -> Awaitable[T]:
        """
        Run a job. If several parties (keys, people or addresses) are active, it waits for turns of its own
        party.
        """
        work = current_work()
        if work is not None and work.turns.are_shared:
            return run_with_pauses(job)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._run_waiting_jobs)
        self._waiting.append((job, result, None if work is None else work.party))
        return result

    def _run_waiting_jobs(self) -> None:
        until = time.perf_counter() + ALONE_S
        while self._waiting:
            job, result, party = self._waiting.popleft()
            if result.done():  # the request was cancelled
                continue
            began = time.perf_counter()
            try:
                result.set_result(_run_to_end(job))
            except BaseException as error:  # noqa: BLE001 - for the request of the job; other jobs must still run
                result.set_exception(error)
            ended = time.perf_counter()
            if party is not None:
                party.charge_time(ended - began)
            if self._waiting and ended > until:
                asyncio.get_running_loop().call_soon(self._run_waiting_jobs)
                return


def _run_to_end(job: Generator[None, None, T]) -> T:
    try:
        while True:
            next(job)
    except StopIteration as done:
        result: T = done.value
        return result


async def run_in_slices(
    make_job: Callable[[Callable[[int], None]], Generator[None, None, T]],
    add_held_bytes: Callable[[int], None],
    *,
    body_bytes: int,
) -> T:
    """
    Run a job in slices. It runs on the thread for long jobs if the request body is large or if the job takes
    long. If other keys or people are active, the job moves to that thread after its first slice. The job
    reports the bytes that it holds through the callback given to `make_job`. After each slice,
    `add_held_bytes` adds these bytes on the event loop.
    """
    reported_bytes: list[int] = []
    work = make_job(reported_bytes.append)
    results: list[T] = []
    is_large = body_bytes > LARGE
    until = time.perf_counter() + ALONE_S
    while not results:
        if is_large:
            await _run_on_long_job_thread(lambda party: _run_stint(work, results, reported_bytes, party))
        else:
            _run_step(work, results)
        # A job of several slices may hold more memory than its body, so it moves to the thread. Short jobs stay on
        # the event loop, because requests decoded in one pass of the loop share a commit.
        is_large = is_large or has_other_active_parties() or time.perf_counter() > until
        if reported_bytes:
            add_held_bytes(sum(reported_bytes))
            reported_bytes.clear()
    return results[0]


async def run_on_thread_if_large(job: Callable[[], T], *, is_large: bool) -> T:
    """Run a job that touches no state of the event loop. A large one runs on the thread for long jobs."""
    return await _run_on_long_job_thread(lambda _: job()) if is_large else job()


async def _run_on_long_job_thread(job: Callable[[FairTurnParty | None], T]) -> T:
    loop, work = asyncio.get_running_loop(), current_work()
    if work is None:
        return await loop.run_in_executor(_THREAD, job, None)
    async with work.hold_long_job_thread() as party:
        return await loop.run_in_executor(_THREAD, _charge_thread_time, job, party)


def _charge_thread_time(job: Callable[[FairTurnParty | None], T], party: FairTurnParty) -> T:
    began = time.thread_time()
    try:
        return job(party)
    finally:
        party.charge_time(time.thread_time() - began)


def _run_stint(
    job: Generator[None, None, T], results: list[T], reported_bytes: list[int], party: FairTurnParty | None
) -> None:
    """
    Run slices of a job on the thread for long jobs: until it ends, until a party with less use waits for the
    thread, or for STINT_S.
    """
    until = time.perf_counter() + STINT_S
    while not results and not reported_bytes:
        _run_step(job, results)
        if party is None or party.turns.is_wanted or time.perf_counter() > until:
            return


def _run_step(job: Generator[None, None, T], results: list[T]) -> None:
    try:
        next(job)
    except StopIteration as done:
        results.append(done.value)


@dataclass(slots=True)
class _PartyQueries:
    """The queries of one person or key. `count` of them wait or run, and one holds `turn`."""

    count: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class QueryTurnScheduler:
    """Gives turns to expensive queries. `settings` is called each time, so that a reload takes effect."""

    def __init__(self, settings: Callable[[], AnswerSettings]) -> None:
        self._settings = settings
        self._askers: dict[str, _PartyQueries] = {}
        self._working = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_until_idle(self) -> None:
        """Wait until no query waits and no answer is in memory."""
        await self._idle.wait()

    async def answer_in_turn(
        self, party_name: str, work: Callable[[], Awaitable[T]], send: Callable[[T], Awaitable[R]]
    ) -> R:
        """
        Answer a query in turn. The turn lasts until the answer is sent, because the answer is in memory until
        then. A slow client delays only other queries of the same `party_name`. Raises Refusal 429 if too many
        queries wait, and AskedTooMuch if this query takes too long.
        """
        section = self._settings()
        async with self._hold_turn(party_name, section):
            async with self._hold_query_slot(section):
                answer = await _run_in_time(work, section)
            return await send(answer)

    async def send_in_turn(
        self,
        party_name: str,
        request: web.Request,
        work: Callable[[], Awaitable[HandlerAnswer]],
        *,
        status: int,
        headers: Mapping[str, str] | None = None,
    ) -> web.StreamResponse:
        async def run_and_encode_answer() -> HandlerAnswer:
            return await encode_in_thread(await work(), status=status, headers=headers)

        async def send_encoded_answer(answer: HandlerAnswer) -> web.StreamResponse:
            return await send_answer(request, answer, status=status, headers=headers)

        return await self.answer_in_turn(party_name, run_and_encode_answer, send_encoded_answer)

    @asynccontextmanager
    async def open_export(self, party_name: str) -> AsyncIterator[RunQuery]:
        """
        Yield a function that runs a query of an export. `party_name` can have one export at a time, because a part
        of it is in memory. Other queries of `party_name` run between its queries.
        """

        async def run_query(work: Callable[[], Awaitable[T]]) -> T:
            return await self.answer_in_turn(party_name, work, _return_answer_unchanged)

        async with self._hold_turn(f"{EXPORT} of {party_name}", self._settings()):
            yield run_query

    async def run_recount(self, party_name: str, work: Callable[[], Awaitable[T]]) -> T:
        """
        Run a recalculation. Only one runs at a time.

        It may take minutes, so it uses neither the query turn of `party_name` nor one of the places for queries.
        `answers.max_time` limits only its wait.
        """
        section = self._settings()
        async with self._hold_turn(f"{RECOUNT} of {party_name}", section), self._hold_turn(RECOUNT, section):
            return await work()

    @asynccontextmanager
    async def _hold_turn(self, party: str, section: AnswerSettings) -> AsyncIterator[None]:
        asker = self._askers.setdefault(party, _PartyQueries())
        if asker.count > section.max_waiting:
            raise _busy_refusal(f"{section.max_waiting} of your queries already wait (answers.max_waiting)")
        asker.count += 1
        self._idle.clear()
        try:
            await _wait_for_turn(asker.turn.acquire(), section)
            try:
                yield
            finally:
                asker.turn.release()
        finally:
            asker.count -= 1
            if not asker.count:
                del self._askers[party]
            if not self._askers:
                self._idle.set()

    @asynccontextmanager
    async def _hold_query_slot(self, section: AnswerSettings) -> AsyncIterator[None]:
        await _wait_for_turn(self._wait_for_query_slot(section.at_once), section)
        try:
            yield
        finally:
            self._release_query_slot()

    async def _wait_for_query_slot(self, limit: int) -> None:
        if self._working < limit and not self._queue:
            self._working += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._queue:
                self._queue.remove(turn)
            # the waiter got its turn just before the cancellation
            elif not turn.cancelled():
                self._release_query_slot()
            raise

    def _release_query_slot(self) -> None:
        self._working -= 1
        max_working = self._settings().at_once
        while self._queue and self._working < max_working:
            turn = self._queue.popleft()
            if not turn.done():
                self._working += 1
                turn.set_result(None)


async def _wait_for_turn(turn: Awaitable[object], section: AnswerSettings) -> None:
    try:
        async with asyncio.timeout(section.max_time):
            await turn
    except TimeoutError:
        raise _busy_refusal(f"the query did not get its turn within {section.max_time:g} s") from None


async def _return_answer_unchanged(answer: T) -> T:
    return answer


async def _run_in_time(work: Callable[[], Awaitable[T]], section: AnswerSettings) -> T:
    until = time.monotonic() + section.max_time
    limit = QuestionLimit(max_rows=section.max_summed_rows, until=until, max_time_s=section.max_time)
    allowed = asyncio.timeout(section.max_time)
    try:
        with apply_limit(limit):
            async with allowed:
                return await work()
    except TimeoutError:
        if allowed.expired():
            raise too_long_error(section.max_time) from None
        raise


def _busy_refusal(reason: str) -> Refusal:
    message = f"{reason}; each person or key runs one large query at a time, so repeat the query shortly"
    return Refusal(429, "busy", message, retry_after_s=RETRY_S)
