"""Memory of the process."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress


def release_unused() -> None:
    """Gives back to the system what was used for a while and is free now; only the C library of Linux can."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
