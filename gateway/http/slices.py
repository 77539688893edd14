"""Long jobs run in slices, so that the event loop gets its turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 64 * 1024  # bytes that are normalised within some two milliseconds


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
