"""Whether a disk is full: what the file system says, and what an error says."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

ALMOST_NOTHING = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(directory: Path) -> bool:
    """True if an input or output error may really be a full disk; False where nothing can be said."""
    try:
        return shutil.disk_usage(directory).free < ALMOST_NOTHING
    except OSError:
        return False


def says_full(error: BaseException) -> bool:
    """True if an error, or what caused it, is that of a full disk or quota."""
    return any(
        (isinstance(cause, OSError) and cause.errno in FULL)
        or getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL"
        for cause in _causes(error)
    )


def explains(error: BaseException, directory: Path, *, was_full: bool = False) -> bool:
    """
    True if an error comes from a full disk, also where SQLite calls it one of input or output.

    `was_full`: before what failed began; room that somebody made since does not make it another error.
    """
    of_the_disk = any(
        isinstance(cause, OSError) or hasattr(cause, "sqlite_errorname") for cause in _causes(error)
    )
    return says_full(error) or (of_the_disk and (was_full or is_full(directory)))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
