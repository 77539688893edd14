"""Memory settings of the process: the C allocator and Python's garbage collector."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress

_MMAP_THRESHOLD = -3  # option number of mallopt
_LARGE = 1024 * 1024
# new objects between two collections; Python's default of 700 costs 5 % of the time for a single span
NEW_OBJECTS = 1000
# Youngest collections between two of the middle generation. All requests wait 3 ms for such a collection, and
# 15 ms with Python's default of 10.
NEW_ROUNDS = 1
NEWER_ROUNDS = 250  # middle collections between two full collections
LOOK_EVERY_S = 1.0
MOST_WAITED_S = 300.0  # after this time a full collection runs even if requests are pending
_NEVER = 2**30


def settle_after_start() -> None:
    """
    Release memory that only the start needed, and exclude the remaining objects from all later collections.

    For a process that only serves. Both steps visit every object. Requests leave few reference cycles, and
    everything else is freed without the collector.
    """
    gc.collect()
    with suppress(OSError, AttributeError):  # only the C library of Linux has mallopt
        library = ctypes.CDLL(None)
        library.malloc_trim(0)
        # Otherwise malloc keeps freed blocks of up to 32 MiB, which is 100 MiB after a few large bodies.
        library.mallopt(_MMAP_THRESHOLD, _LARGE)
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, NEW_ROUNDS, max(NEWER_ROUNDS, gc.get_threshold()[2]))


async def make_full_rounds(until_idle: Callable[[], Awaitable[object]]) -> None:
    """
    Run full collections between requests, instead of leaving the moment to Python.

    All requests wait for a full collection, longest while a large response is built: 0.2 s for two million objects.
    """
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    try:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if gc.get_count()[2] > NEWER_ROUNDS:
                with suppress(TimeoutError):
                    await asyncio.wait_for(until_idle(), MOST_WAITED_S)
                gc.collect()
    finally:
        gc.set_threshold(*gc.get_threshold()[:2], NEWER_ROUNDS)
