"""Exclusive locks on open files, released when the process ends."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Windows locks bytes against all readers, so the locked byte lies beyond the end of every text.
_LOCKED_BYTE = 1 << 30


def lock_without_waiting(descriptor: int) -> None:
    """Lock the file without waiting. Raises OSError if another process has locked it."""
    if sys.platform == "win32":
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
