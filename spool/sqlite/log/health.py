"""
The health of the log. The last commit shows whether records can be stored. After a failed commit, a test
commit shows it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

from spool import disks
from spool.clock import Clock
from spool.errors import SpoolError, SpoolFull, SpoolUnavailable
from spool.sql import facts
from spool.sqlite.damage import notes
from spool.sqlite.database import Database, SqliteConnection, is_corrupt
from spool.sqlite.reserve import DiskReserve

DISK_FULL = "the disk is full"

_log = logging.getLogger(__name__)


class LogHealth:
    """
    The health of the log after its last write.

    After a failed flush, nothing is acknowledged until a test commit succeeds. SQLite then writes the frames
    of the failed commit again at the same position, and with them pages that the kernel may have dropped
    after the error.
    """

    def __init__(
        self, database: Database, reserve: DiskReserve, clock: Clock, retry_after_s: Callable[[], int]
    ) -> None:
        self._database = database
        self._reserve = reserve
        self._clock = clock
        self._retry_after_s = retry_after_s
        self._disk_full = False
        self.files_gone = ""  # names of the files that were missing from their place at the last check
        self.files: dict[str, Callable[[], bool]] = {database.path.name: database.are_files_in_place}
        self.last_error: str | None = None

    @property
    def is_well(self) -> bool:
        return self.last_error is None

    def check_files(self) -> None:
        """Raise SpoolUnavailable if a file was deleted or replaced, because a restart would lose new data."""
        missing = ", ".join([name for name, is_in_place in self.files.items() if not is_in_place()])
        if missing != self.files_gone:
            self.files_gone = missing
            if missing:
                _log.critical(
                    "%s: deleted or replaced; restart Tollhouse", missing, extra={"action": "files_gone"}
                )
            else:
                _log.warning("the files are back in their place", extra={"action": "files_back"})
        if missing:
            raise SpoolUnavailable(
                f"{missing} was deleted or replaced while Tollhouse runs: restore it, or restart Tollhouse"
            )

    def restore_disk_reserve(self) -> None:
        """Allocate the reserve of disk space again, if there is space."""
        try:
            if self._reserve.reallocate_if_possible():
                return
        except OSError as error:
            self.note_failure(error)
            return
        self._disk_full = True
        self.last_error = DISK_FULL
        _log.error("no space for the reserve: nothing is stored for now", extra={"action": "disk_full"})

    def note_failure(self, error: sqlite3.Error | OSError) -> SpoolError:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if self.is_well:
            _log.error("a commit failed: %s", error, extra={"action": "commit_failed", "code": name})
        self._disk_full = disks.is_caused_by_full_disk(error) or self._reserve.is_disk_full()
        self.last_error = DISK_FULL if self._disk_full else f"{error} ({name})"
        try:
            # this is a defect, because valid data cannot violate a constraint of the tables
            if isinstance(error, sqlite3.IntegrityError) or (
                isinstance(error, sqlite3.Error) and is_corrupt(error)
            ):
                notes.mark_damaged(self._database.path.parent, error)
            if self._disk_full:
                self._reserve.release()
        except OSError as further:
            # no file descriptor is left, or the mount is read-only
            _log.error(
                "the data directory cannot be written: %s", further, extra={"action": "directory_failed"}
            )
        if self._disk_full:
            return self._disk_full_error()
        return SpoolUnavailable(f"the last commit failed: {self.last_error}")

    async def run_test_commit(self) -> None:
        now = str(self._clock.now()).encode()
        try:
            if self._disk_full and not self._reserve.reallocate_if_possible():
                raise self._disk_full_error()
            await self._database.transaction(
                lambda writer: facts.store_fact(SqliteConnection(writer), "test", now)
            )
        except (sqlite3.Error, OSError) as error:
            raise self.note_failure(error) from error
        _log.warning("commits work again", extra={"action": "commit_works"})
        self._disk_full = False
        self.last_error = None

    def _disk_full_error(self) -> SpoolFull:
        return SpoolFull("the disk is full: free some space, or wait", retry_after_s=self._retry_after_s())
