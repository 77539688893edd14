"""
Long jobs run in slices, so that the event loop gets its turn in between; those of large bodies on a thread.

Where a slice may be one long document, turns between slices are not enough. On a thread the loop has its turn within a
slice, too: at the latest when the parser has passed over its window.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

AT_ONCE = 64 * 1024  # bytes that are normalised within some two milliseconds
LARGE: Final = 256 * 1024  # bytes of a body that is read on the thread
# The event loop waits so long for the interpreter's lock each time it comes back from the system: several times a
# request, so that Python's own 5 ms add up to hundreds.
TURN_S: Final = 0.0005
# One for all: slices of several bodies take turns on it, and it is done with one before the memory of the next.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="large-bodies")


async def drive(work: Generator[None, None, T], *, size: int | None = None) -> T:
    """
    Run a job slice by slice and return its result; a body of few bytes needs no turns in between.

    `size` is None where a body may hold more than it weighs.
    """
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        if size is None or size > AT_ONCE:
            await asyncio.sleep(0)


async def drive_aside(
    make: Callable[[Callable[[int], None]], Generator[None, None, T]], take: Callable[[int], None], *, size: int
) -> T:
    """
    Run the job that `make` returns, of a body of so many bytes: on the thread if that is large or does not end soon.

    What the job says that it holds, by calling what `make` is given, is taken by the event loop after each slice.
    """
    held: list[int] = []
    work = make(held.append)
    results: list[T] = []
    is_large = size > LARGE
    while not results:
        await aside(lambda: _step(work, results), is_large=is_large)
        is_large = True  # what needs a second slice may hold more than it weighs
        if held:
            take(sum(held))
            held.clear()
    return results[0]


async def aside(job: Callable[[], T], *, is_large: bool) -> T:
    """The result of a job that touches nothing of the event loop's; on the thread if it is large."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, _in_short_turns, job) if is_large else job()


def _in_short_turns(job: Callable[[], T]) -> T:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        return job()
    finally:
        sys.setswitchinterval(usual)


def _step(work: Generator[None, None, T], results: list[T]) -> None:
    try:
        next(work)
    except StopIteration as done:
        results.append(done.value)
