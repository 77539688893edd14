"""
What threads share: the processor, types, and the interpreter.

Threads that take requests and commit have the processor as soon as they wake; threads and processes that
compute large answers and read large bodies leave it to them. Threads that answer questions share the
interpreter with the event loop, which waits for as long as one step of theirs: sorting a hundred thousand
rows at once is a quarter of a second.
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

# Of nice: beside a thread of usual priority about a tenth of the processor. The kernel lets a thread that
# wakes wait for what it had beyond its part: with a quarter for these up to a tick of its clock, 4 ms.
STEPS_LOWER: Final = 10
# A thread that wakes has the processor at once from one whose slices are longer. Without that the thread that
# commits waits for the next tick of the kernel's clock after each flush: 4 ms where the flush takes 0.5.
SHORT_SLICE_NS: Final = 100_000  # the shortest that Linux takes
USUAL_SLICE_NS: Final = 0  # the kernel's own, about 3 ms

_SCHED_SETATTR: Final = {
    "x86_64": 314,
    "aarch64": 274,
}  # numbers of the system call, which Python does not have
_KEEP_POLICY: Final = 0x08
# struct sched_attr: size, policy, flags, nice, priority, runtime (here the slice), deadline, period
_ATTRIBUTES: Final = struct.Struct("IIQiIQQQ")

_log = logging.getLogger(__name__)


def shorten_slices() -> None:
    """
    Give the thread that calls short slices of the processor, and all threads that it starts.

    Linux 6.12 and newer know slices, older kernels ignore them; elsewhere nothing changes.
    """
    _set_slice(SHORT_SLICE_NS)


def lower_priority() -> None:
    """
    Lower the priority of the thread that calls, and give it slices of the usual length.

    On Linux each thread has its own. Elsewhere, and where it is refused, all keep theirs: answers are slower
    beside large questions.
    """
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    try:
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + STEPS_LOWER)
    except OSError as error:
        _log.debug("the priority of a thread stays: %s", error, extra={"action": "priority_kept"})
    _set_slice(USUAL_SLICE_NS)


def _set_slice(nanoseconds: int) -> None:
    number = _SCHED_SETATTR.get(platform.machine()) if sys.platform == "linux" else None
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return  # another policy has been chosen for the service, and has no such slices
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, _KEEP_POLICY, nice, 0, nanoseconds, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, 0, attributes, 0):
        reason = os.strerror(ctypes.get_errno())
        _log.debug("the slices of a thread stay: %s", reason, extra={"action": "slices_kept"})


# -- types that threads read at the same time ----------------------------------------------------------------


def prepare(*types: Any) -> None:
    """
    Let msgspec work out types now, where a module is imported, and not at the first use.

    Two threads that use a type for the first time at once end the process: the second one reads what the first
    one has half made.
    """
    for each in types:
        msgspec.msgpack.Decoder(each)


# -- long lists in order and sums of long lists, in steps of a few milliseconds ------------------------------


T = TypeVar("T")
STEP = 2048  # values


def ordered(values: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    """Sort as `sorted` does, in calls of at most STEP values."""
    found = list(values)
    if len(found) <= STEP:
        return sorted(found, key=key)
    # Keys are made again for the merge: kept, they are so many objects that the collector looks through all
    # of them.
    runs = [sorted(found[begin : begin + STEP], key=key) for begin in range(0, len(found), STEP)]
    return list(merge(*runs, key=key))


def sums(rows: Sequence[Sequence[int]], width: int) -> tuple[int, ...]:
    """Sum each column of rows with `width` columns."""
    found = (0,) * width
    for begin in range(0, len(rows), STEP):
        columns = zip(*rows[begin : begin + STEP], strict=True)
        found = tuple([before + sum(column) for before, column in zip(found, columns, strict=True)])
    return found
