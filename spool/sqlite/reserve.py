"""
Reserved disk space that is freed when the disk is full, because deleting also needs space.

There are two files. Only a start frees the second, smaller one: SQLite needs files next to a database even to
read it, and the main reserve may already be freed by then.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path

from spool import disks
from spool.clock import Clock

SIZE = 32 << 20
FILE = "reserve"
START_SIZE = 1 << 20
START_FILE = "reserve.start"
MOST_WAIT_S = 60.0
# seconds; if the disk reserve must be freed again sooner, the next attempt to restore it waits longer
CALM_S = 3 * MOST_WAIT_S

_log = logging.getLogger(__name__)


class DiskReserve:
    """
    Reserved disk space: files of zeros, deleted when the disk is full. Methods raise OSError if the directory
    cannot be accessed.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._given_up_at = float("-inf")
        self._wait_s = 0.0

    def reallocate_if_possible(self) -> bool:
        """
        Allocate the reserve again, if twice its size is free. Return whether it is allocated.

        A quota may make free space unusable although the file system reports it as free. The reserve would
        then be freed and allocated again and again, so each wait is twice as long as the one before.
        """
        self._allocate(START_FILE, START_SIZE)
        if self._has_full_size(FILE, SIZE):
            return True
        if self._clock.monotonic() < self._given_up_at + self._wait_s:
            return False
        return self._allocate(FILE, SIZE)

    def release(self) -> None:
        if self._delete_file(FILE):
            now = self._clock.monotonic()
            is_repeated = now < self._given_up_at + CALM_S
            self._wait_s = min(MOST_WAIT_S, max(1.0, 2 * self._wait_s)) if is_repeated else 0.0
            self._given_up_at = now

    def give_up_when_full(self) -> None:
        """
        Free the small reserve if a start finds the disk full, because SQLite needs space next to the database
        even to read it.
        """
        for name in (FILE, START_FILE):
            if disks.is_disk_full(self._directory):
                self._delete_file(name)

    def is_disk_full(self) -> bool:
        """Return whether a full disk or quota may have caused an input or output error."""
        return disks.is_disk_full(self._directory)

    def _allocate(self, name: str, size: int) -> bool:
        if self._has_full_size(name, size):
            return True
        if shutil.disk_usage(self._directory).free < 2 * size:
            return False
        path = self._directory / name
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                _allocate_disk_space(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError as error:  # the disk has no space or no inode, or a quota is exceeded
            path.unlink(missing_ok=True)
            if error.errno not in disks.FULL:
                raise
            return False
        return True

    def _delete_file(self, name: str) -> bool:
        path = self._directory / name
        if not path.exists():
            return False
        path.unlink(missing_ok=True)
        _log.warning(
            "the disk is full: freed the reserved space", extra={"action": "reserve_given_up", "file": name}
        )
        return True

    def _has_full_size(self, name: str, size: int) -> bool:
        try:
            return (self._directory / name).stat().st_size >= size
        except FileNotFoundError:
            return False


def _allocate_disk_space(descriptor: int, size: int) -> None:
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, 0, size)
    else:  # elsewhere, only written bytes surely occupy disk space
        block = bytes(1 << 20)
        for begin in range(0, size, len(block)):
            os.write(descriptor, block[: size - begin])
