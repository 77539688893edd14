"""
Thread priorities, types that threads share, and long computations in short steps.

Threads that receive requests and commit get the processor as soon as they wake. Threads and processes that
compute large responses or read large bodies have a lower priority. Threads that answer queries share the
interpreter with the event loop, which waits for each of their steps. Sorting 100,000 rows in one step would
take a quarter of a second.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from typing import Any, Final, TypeVar

import msgspec

# Nice levels to add. A thread with this priority gets about a tenth of the processor next to a normal thread.
# With a quarter, the kernel could delay a waking thread by up to a tick of its clock, 4 ms.
STEPS_LOWER: Final = 10
# A waking thread preempts a thread with longer slices at once. Otherwise the committing thread would wait for
# the next tick of the kernel's clock after each flush: 4 ms, when a flush takes 0.5 ms.
SHORT_SLICE_NS: Final = 100_000  # the shortest slice that Linux accepts
USUAL_SLICE_NS: Final = 0  # 0 selects the kernel's default, about 3 ms

_SCHED_SETATTR: Final = {
    "x86_64": 314,
    "aarch64": 274,
}  # numbers of the system call, which Python does not provide
_KEEP_POLICY: Final = 0x08
# struct sched_attr: size, policy, flags, nice, priority, runtime (here the slice length), deadline, period
_ATTRIBUTES: Final = struct.Struct("IIQiIQQQ")

_log = logging.getLogger(__name__)


def shorten_slices() -> None:
    """
    Give the calling thread, and the threads that it starts, short slices of the processor.

    Linux 6.12 and newer support it. Older kernels ignore it, and other systems are not affected.
    """
    _set_slice(SHORT_SLICE_NS)


def lower_priority() -> None:
    """
    Lower the priority of the calling thread, and give it slices of the usual length.

    Only Linux has a priority per thread. On other systems, or if it is denied, responses are slower while
    large queries run.
    """
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    try:
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + STEPS_LOWER)
    except OSError as error:
        _log.debug(
            "the priority of a thread could not be lowered: %s", error, extra={"action": "priority_kept"}
        )
    _set_slice(USUAL_SLICE_NS)


def _set_slice(nanoseconds: int) -> None:
    number = _SCHED_SETATTR.get(platform.machine()) if sys.platform == "linux" else None
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return  # the service runs with another scheduling policy, which has no such slices
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, _KEEP_POLICY, nice, 0, nanoseconds, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, 0, attributes, 0):
        reason = os.strerror(ctypes.get_errno())
        _log.debug("the slices of a thread could not be changed: %s", reason, extra={"action": "slices_kept"})


# -- types that threads read at the same time ----------------------------------------------------------------


def prepare(*types: Any) -> None:
    """
    Let msgspec prepare types at import.

    Two threads that use a type for the first time at once crash the process, because one reads what the other
    has only half prepared.
    """
    for decoded_type in types:
        msgspec.msgpack.Decoder(decoded_type)


# -- sorting and summing long lists in steps of a few milliseconds -------------------------------------------


T = TypeVar("T")
STEP = 2048  # values that are sorted or summed per step


def ordered(values: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    """Sort as `sorted` does, in calls of at most STEP values."""
    unsorted = list(values)
    if len(unsorted) <= STEP:
        return sorted(unsorted, key=key)
    # The merge computes keys again. If they were stored, the garbage collector would traverse all of these objects.
    runs = [sorted(unsorted[begin : begin + STEP], key=key) for begin in range(0, len(unsorted), STEP)]
    return list(merge(*runs, key=key))


def sums(rows: Sequence[Sequence[int]], width: int) -> tuple[int, ...]:
    """Sum each column of rows with `width` columns."""
    totals = (0,) * width
    for begin in range(0, len(rows), STEP):
        columns = zip(*rows[begin : begin + STEP], strict=True)
        totals = tuple([before + sum(column) for before, column in zip(totals, columns, strict=True)])
    return totals
