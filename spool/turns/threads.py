"""
Thread priorities, types for several threads, and long computations in short steps.

Threads that receive and commit get the processor when they wake. Threads for large responses or bodies have a
lower priority. Query threads share the interpreter with the event loop, which waits during their steps:
sorting 100,000 rows in one step would block it for a quarter of a second.
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

# Nice levels by which background threads are lower. They get about a tenth of the processor next to a normal
# thread. With a quarter, the kernel could delay a waking thread by a tick, 4 ms.
STEPS_LOWER: Final = 10
# A waking thread interrupts a thread with longer slices. Otherwise, after each flush of 0.5 ms, the
# committing thread would wait up to 4 ms for the kernel's tick.
SHORT_SLICE_NS: Final = 100_000  # nanoseconds, the shortest slice that Linux accepts
USUAL_SLICE_NS: Final = 0  # the kernel's default, about 3 ms

# number of the system call by machine type, because Python has no function for it
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
_KEEP_POLICY: Final = 0x08
# struct sched_attr: size, policy, flags, nice, priority, runtime (slice), deadline, period
_ATTRIBUTES: Final = struct.Struct("IIQiIQQQ")

_log = logging.getLogger(__name__)


def shorten_thread_time_slices() -> None:
    """Shorten the time slices of this thread and of threads that it starts, from Linux 6.12 on."""
    _set_scheduler_time_slice(SHORT_SLICE_NS)


def lower_priority() -> None:
    """
    Give this thread a lower priority, and time slices of the usual length.

    Only Linux has priorities per thread. Elsewhere, or if denied, responses are slower during large queries.
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
    _set_scheduler_time_slice(USUAL_SLICE_NS)


def _set_scheduler_time_slice(nanoseconds: int) -> None:
    if sys.platform != "linux":
        return
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return  # the thread has another scheduling policy, without such slices
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, _KEEP_POLICY, nice, 0, nanoseconds, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, 0, attributes, 0):
        reason = os.strerror(ctypes.get_errno())
        _log.debug("the slices of a thread could not be changed: %s", reason, extra={"action": "slices_kept"})


# -- types that threads read at once
# ----------------------------------------------------------------------------


def prepare_types_for_msgspec(*types: Any) -> None:
    """
    Prepare types for encoding and decoding, at import.

    If two threads first use a type at the same time, one may read half prepared data, and the process can
    crash.
    """
    for decoded_type in types:
        msgspec.msgpack.Decoder(decoded_type)


# -- sorting and summing long lists in steps of a few milliseconds -------------------------------------------


T = TypeVar("T")
STEP = 2048  # values per step


def sort_in_short_steps(values: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    unsorted = list(values)
    if len(unsorted) <= STEP:
        return sorted(unsorted, key=key)
    # Keys are computed again, because stored keys would burden the garbage collector.
    runs = [sorted(unsorted[begin : begin + STEP], key=key) for begin in range(0, len(unsorted), STEP)]
    return list(merge(*runs, key=key))


def sum_columns(rows: Sequence[Sequence[int]], column_count: int) -> tuple[int, ...]:
    totals = (0,) * column_count
    for begin in range(0, len(rows), STEP):
        columns = zip(*rows[begin : begin + STEP], strict=True)
        totals = tuple([before + sum(column) for before, column in zip(totals, columns, strict=True)])
    return totals
