"""Memory settings of the process: the C allocator and Python's garbage collector."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from spool.loops import repeat

_MMAP_THRESHOLD = -3  # option number of M_MMAP_THRESHOLD in mallopt
_LARGE = 1024 * 1024
# new objects between two collections; with Python's default of 700, a single span takes 5 % longer
NEW_OBJECTS = 1000
# Number of collections of the youngest generation for each collection of the middle generation. A collection
# of the middle generation delays all requests by 3 ms, or by 15 ms with Python's default of 10.
NEW_ROUNDS = 1
NEWER_ROUNDS = 250  # number of collections of the middle generation for each full collection
LOOK_EVERY_S = 1.0
# seconds between two checks while there are no requests, because other work needs few garbage collections
QUIET_LOOK_S = 30.0
MOST_WAITED_S = 300.0  # seconds after which a full collection runs, even if requests are pending
_NEVER = 2**30


def trim_and_freeze_memory() -> None:
    """
    Release memory that only the start needed, and exclude all objects that exist now from later collections.

    Call this only in a process that serves requests. Both steps visit every object. Requests leave few
    reference cycles, and all other objects are freed without the collector.
    """
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # a C library other than glibc may lack mallopt
            library = ctypes.CDLL(None)
            library.malloc_trim(0)
            # Without this threshold, malloc keeps freed blocks of up to 32 MiB, which are 100 MiB after a
            # few large bodies.
            library.mallopt(_MMAP_THRESHOLD, _LARGE)
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, NEW_ROUNDS, max(NEWER_ROUNDS, gc.get_threshold()[2]))


async def collect_garbage_when_idle(
    wait_until_idle: Callable[[], Awaitable[object]], wait_for_activity: Callable[[float], Awaitable[object]]
) -> None:
    """
    Run full garbage collections between requests, instead of whenever Python would. `wait_for_activity` waits for the
    next request, at most the number of seconds that it receives.

    During a full collection, all requests wait. The wait is longest while a large response is built: 0.2 s
    for two million objects.
    """
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)

    async def wait_and_collect() -> None:
        await asyncio.sleep(LOOK_EVERY_S)
        await wait_for_activity(QUIET_LOOK_S)
        if gc.get_count()[2] > NEWER_ROUNDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(MOST_WAITED_S):
                    await wait_until_idle()
            gc.collect()

    try:
        await repeat(
            wait_and_collect,
            every_s=0.0,
            failed="unused memory could not be freed",
            action="memory_not_freed",
        )
    finally:
        gc.set_threshold(*gc.get_threshold()[:2], NEWER_ROUNDS)
