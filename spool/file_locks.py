"""Exclusive locks on open files. The system releases a lock when the process ends for any reason."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Windows locks bytes, and nobody else can read them. This byte is behind every text in a lock file.
_LOCKED_BYTE = 1 << 30


def lock_at_once(descriptor: int) -> None:
    """Lock an open file. Raises OSError if another process holds the lock."""
    if sys.platform == "win32":
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
