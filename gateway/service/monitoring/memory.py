"""Memory of the process."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress

_MMAP_THRESHOLD = -3  # of mallopt
_LARGE = 1024 * 1024
NEW_OBJECTS = 1000  # between two rounds of the collector; Python's own 700 cost a twentieth of a single span
# Rounds through what is new between two through what is newer: everybody waits 3 ms for one of those, 15 with
# Python's own 10.
NEW_ROUNDS = 1
NEWER_ROUNDS = 250  # of those between two through everything
LOOK_EVERY_S = 1.0
MOST_WAITED_S = 300.0  # then a full round is made although questions are pending
_NEVER = 2**30


def settle_after_start() -> None:
    """
    Give back what the start used for a while; what is there now stays to the end, and no round looks at it again.

    For a process that serves and does nothing else: both go through all that it holds. Requests leave few
    cycles behind; what else they made is freed without the collector.
    """
    gc.collect()
    with suppress(OSError, AttributeError):  # only the C library of Linux can
        library = ctypes.CDLL(None)
        library.malloc_trim(0)
        # By itself it keeps blocks of up to 32 MiB once one was freed: 100 MiB after a few large bodies.
        library.mallopt(_MMAP_THRESHOLD, _LARGE)
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, NEW_ROUNDS, max(NEWER_ROUNDS, gc.get_threshold()[2]))


async def make_full_rounds(until_idle: Callable[[], Awaitable[object]]) -> None:
    """
    Make the collector's rounds through all objects between questions, in place of Python, which makes them
    at any moment.

    Everybody waits for such a round, and longest while a large answer is made: 0.2 s for two million objects.
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
