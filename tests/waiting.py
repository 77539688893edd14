"""
Wait for events: one limit for all tests, and one error that no comparison of data raises.

A busy machine delays events and changes no data. So `StillWaiting` is no AssertionError: `make test` repeats a test
that failed with it, once and alone, and repeats no test that failed otherwise.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, overload

T = TypeVar("T")
LIMIT_S = 600.0  # the timeout of pytest is longer, because it cannot say which event is missing
LONGEST_REST_S = 0.3
LONGEST_REST_OF_A_LOOP_S = 0.05


class StillWaiting(Exception):
    """An event did not happen within the limit."""


def wait_until(condition: Callable[[], T], what: str | Callable[[], object]) -> T:
    """
    Poll a condition of another process or thread until it is true; return its value. `what` names the event.

    The polling interval grows with the wait, because each poll costs the other process time as well.
    """
    began = time.monotonic()
    while not (found := condition()):
        waited_s = time.monotonic() - began
        if waited_s >= LIMIT_S:
            raise StillWaiting(_message(what))
        time.sleep(min(0.02 + waited_s / 10, LONGEST_REST_S))
    return found


@overload
async def until(condition: Callable[[], Awaitable[T]], what: str = "") -> T: ...
@overload
async def until(condition: Callable[[], T], what: str = "") -> T: ...
async def until(condition: Callable[[], object], what: str = "") -> object:
    """Poll a condition, which may be asynchronous, until it is true; return its value."""
    began = time.monotonic()
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        waited_s = time.monotonic() - began
        if waited_s >= LIMIT_S:
            raise StillWaiting(_message(what or f"{condition}"))
        await asyncio.sleep(min(waited_s / 10, LONGEST_REST_OF_A_LOOP_S))


@asynccontextmanager
async def limited(what: str = "an event in this block") -> AsyncIterator[None]:
    """End a block that awaits events after the limit."""
    limit = asyncio.timeout(LIMIT_S)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise StillWaiting(_message(what)) from None
        raise


async def awaited(event: Awaitable[T]) -> T:
    async with limited(str(event)):
        return await event


def _message(what: object) -> str:
    return f"waited {LIMIT_S:.0f} s for: {what() if callable(what) else what}"
