"""
Thread priorities, types that several threads use, and long computations in short steps.

Threads that receive requests and commit get the processor as soon as they wake. Threads and processes that
compute large responses or read large bodies have a lower priority. Threads that compute query results share
the interpreter with the event loop, which waits while one of their steps runs. Sorting 100,000 rows in one
step would take a quarter of a second.
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

# Amount that is added to the nice level. A thread with this priority gets about a tenth of the processor next
# to a normal thread. If it got a quarter, the kernel could delay a waking thread by up to a tick of its
# clock, 4 ms.
STEPS_LOWER: Final = 10
# A waking thread preempts a thread with longer slices at once. Otherwise, after each flush of 0.5 ms, the
# committing thread would wait up to 4 ms for the next tick of the kernel's clock.
SHORT_SLICE_NS: Final = 100_000  # nanoseconds, the shortest slice that Linux accepts
USUAL_SLICE_NS: Final = 0  # 0 selects the kernel's default slice of about 3 ms

# numbers of the system call by machine type, because Python has no function for this call
_SCHED_SETATTR: Final = {
    "x86_64": 314,
    "aarch64": 274,
}
_KEEP_POLICY: Final = 0x08
# Layout of struct sched_attr: size, policy, flags, nice, priority, runtime (here the slice
# length), deadline, period.
_ATTRIBUTES: Final = struct.Struct("IIQiIQQQ")

_log = logging.getLogger(__name__)


def shorten_slices() -> None:
    """
    Give short processor slices to the calling thread, and to the threads that it starts.

    Linux 6.12 and newer support this. Older kernels ignore it, and on other systems this does nothing.
    """
    _set_slice(SHORT_SLICE_NS)


def lower_priority() -> None:
    """
    Lower the priority of the calling thread, and give it slices of the usual length.

    Only Linux has a priority per thread. On other systems, or if the call is denied, responses are slower
    while large queries run.
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
    if sys.platform != "linux":
        return
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return  # the service runs under another scheduling policy, which does not use such slices
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, _KEEP_POLICY, nice, 0, nanoseconds, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, 0, attributes, 0):
        reason = os.strerror(ctypes.get_errno())
        _log.debug("the slices of a thread could not be changed: %s", reason, extra={"action": "slices_kept"})


# -- types that threads read at the same time ----------------------------------------------------------------


def prepare_types(*types: Any) -> None:
    """
    Let msgspec prepare types at import.

    If two threads use a type for the first time at the same moment, the process can crash, because one thread
    reads data that the other has prepared only in part.
    """
    for decoded_type in types:
        msgspec.msgpack.Decoder(decoded_type)


# -- sorting and summing long lists in steps of a few milliseconds -------------------------------------------


T = TypeVar("T")
STEP = 2048  # number of values that are sorted or added up per step


def sort_in_steps(values: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    """Sort as `sorted` does, in steps of at most STEP values."""
    unsorted = list(values)
    if len(unsorted) <= STEP:
        return sorted(unsorted, key=key)
    # The merge computes keys again. If they were stored, the garbage collector would have to traverse them.
    runs = [sorted(unsorted[begin : begin + STEP], key=key) for begin in range(0, len(unsorted), STEP)]
    return list(merge(*runs, key=key))


def sum_columns(rows: Sequence[Sequence[int]], width: int) -> tuple[int, ...]:
    """Add up each column of rows with `width` columns."""
    totals = (0,) * width
    for begin in range(0, len(rows), STEP):
        columns = zip(*rows[begin : begin + STEP], strict=True)
        totals = tuple([before + sum(column) for before, column in zip(totals, columns, strict=True)])
    return totals
