"""
The reserve: space on the disk that is given up when the disk is full, because deleting needs space too.

A second, small file is given up by a start alone: the files that SQLite keeps beside a database need space
before it can even be read, and the reserve itself may be gone by then.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from spool import disks
from spool.clock import Clock

SIZE = 32 << 20
FILE = "reserve"
START_SIZE = 1 << 20
START_FILE = "reserve.start"
MOST_WAIT_S = 60.0
CALM_S = 3 * MOST_WAIT_S  # given up again within this time, it is restored later each time

_log = logging.getLogger(__name__)


class Reserve:
    """Files of zeros in the data directory. OSError where the directory cannot be looked at."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._given_up_at = float("-inf")
        self._wait_s = 0.0

    def restore(self) -> bool:
        """
        Allocate it again once twice as much is free; False while it is not.

        A quota of which the file system says nothing leaves space that cannot be used: then the reserve is
        given up and restored in turns, and each turn takes twice as long as the one before.
        """
        self._allocate(START_FILE, START_SIZE)
        if self._held(FILE, SIZE):
            return True
        if self._clock.monotonic() < self._given_up_at + self._wait_s:
            return False
        return self._allocate(FILE, SIZE)

    def give_up(self) -> None:
        """Free the space, so that deleting can use it."""
        if self._release(FILE):
            now = self._clock.monotonic()
            again = now < self._given_up_at + CALM_S
            self._wait_s = min(MOST_WAIT_S, max(1.0, 2 * self._wait_s)) if again else 0.0
            self._given_up_at = now

    def give_up_when_full(self) -> None:
        """
        Give up the reserve at a start on a full disk: SQLite needs space for the files beside the database,
        even to read.
        """
        for name in (FILE, START_FILE):
            if disks.is_full(self._directory):
                self._release(name)

    def disk_is_full(self) -> bool:
        """True if an input or output error may really be a full disk or quota."""
        return disks.is_full(self._directory)

    def _allocate(self, name: str, size: int) -> bool:
        if self._held(name, size):
            return True
        if shutil.disk_usage(self._directory).free < 2 * size:
            return False
        path = self._directory / name
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
            finally:
                os.close(descriptor)
        except OSError as error:  # no space, no inode, or over a quota
            path.unlink(missing_ok=True)
            if error.errno not in disks.FULL:
                raise
            return False
        return True

    def _release(self, name: str) -> bool:
        """False when it was given up before."""
        path = self._directory / name
        if not path.exists():
            return False
        path.unlink(missing_ok=True)
        _log.warning(
            "the disk is full: the reserve is given up", extra={"action": "reserve_given_up", "file": name}
        )
        return True

    def _held(self, name: str, size: int) -> bool:
        try:
            return (self._directory / name).stat().st_size >= size
        except FileNotFoundError:
            return False
