"""Memory of the process."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

_MMAP_THRESHOLD = -3  # of mallopt
_LARGE = 1024 * 1024
NEW_OBJECTS = 5000  # between two rounds of the collector; Python's own 700 cost a twentieth of a single span


def settle_after_start() -> None:
    """
    Give back what the start used for a while; what is there now stays to the end, and no round looks at it
    again.

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
    gc.set_threshold(NEW_OBJECTS)
