"""
The reserve: space on the disk that is given up when the disk is full, because deleting needs space too.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path

SIZE = 32 << 20
FILE = "reserve"

_log = logging.getLogger(__name__)


class Reserve:
    """A file of zeros in the data directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE

    def restore(self) -> bool:
        """Allocate it again once twice as much is free; False while it is not."""
        if self._held():
            return True
        if shutil.disk_usage(self._path.parent).free < 2 * SIZE:
            return False
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, SIZE)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
        return True

    def give_up(self) -> None:
        """Free the space, so that deleting can use it."""
        if self._held():
            self._path.unlink(missing_ok=True)
            _log.warning("the disk is full: the reserve is given up", extra={"action": "reserve_given_up"})

    def give_up_when_full(self) -> None:
        """At a start: SQLite cannot even read without space for the files that it keeps beside the database."""
        if self.disk_is_full():
            self.give_up()

    def disk_is_full(self) -> bool:
        """Whether an input or output error may really be a full disk or quota."""
        return shutil.disk_usage(self._path.parent).free < 1 << 20

    def _held(self) -> bool:
        try:
            return self._path.stat().st_size >= SIZE
        except FileNotFoundError:
            return False
