"""
Long jobs run in slices, so that others get their turn in between; those of large bodies on a thread.

Where a slice may be one long document, turns between slices are not enough. On a thread the loop has its turn
within a slice, too: at the latest when the parser has passed over its window.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from spool.turns.fair_turns import ALONE_S, Party, current_work, others_are_there, pause_when_due
from spool.turns.threads import lower_priority

T = TypeVar("T")

LARGE: Final = 256 * 1024  # bytes of a body that is read on the thread
STINT_S: Final = 0.02  # of the thread for one body, while nobody waits who used less
# One for all: it is done with one slice before the memory of the next.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="large-bodies", initializer=lower_priority)


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
