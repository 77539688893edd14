"""
Whether the log can keep what it is given: known from the last commit, and after a failed one from a test commit.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

from spool import disks
from spool.clock import Clock
from spool.errors import SpoolError, SpoolFull, SpoolUnavailable
from spool.sqlite.damage import notes
from spool.sqlite.database import Database, is_corrupt
from spool.sqlite.log import queries
from spool.sqlite.reserve import Reserve

DISK_FULL = "the disk is full"

_log = logging.getLogger(__name__)


class LogHealth:
    """
    Taken from the last real write.

    After a failed flush nothing is acknowledged until a test commit has passed. SQLite writes the frames of a
    failed commit again in the same place, so a page that the kernel dropped after the error does not stay lost.
    """

    def __init__(
        self, database: Database, reserve: Reserve, clock: Clock, retry_after_s: Callable[[], int]
    ) -> None:
        self._database = database
        self._reserve = reserve
        self._clock = clock
        self._retry_after_s = retry_after_s
        self._disk_full = False
        self.files_gone = ""  # those that the last check missed
        self.files: dict[str, Callable[[], bool]] = {database.path.name: database.is_in_place}
        self.last_error: str | None = None

    @property
    def well(self) -> bool:
        return self.last_error is None

    def check_files(self) -> None:
        """
        SpoolUnavailable while one of the files is not where it was opened: what is kept now is gone at a restart.
        """
        gone = ", ".join([name for name, is_in_place in self.files.items() if not is_in_place()])
        if gone != self.files_gone:
            self.files_gone = gone
            if gone:
                _log.critical("%s: removed or replaced; restart", gone, extra={"action": "files_gone"})
            else:
                _log.warning("the files are in their place again", extra={"action": "files_back"})
        if gone:
            raise SpoolUnavailable(
                f"{gone} was removed or replaced while Tollhouse runs: put it back, or restart"
            )

    def begin(self) -> None:
        """A start on a full disk is a start: reading and deleting work, keeping has to wait."""
        try:
            if self._reserve.restore():
                return
        except OSError as error:
            self.failed(error)
            return
        self._disk_full = True
        self.last_error = DISK_FULL
        _log.error("there is no room for the reserve: nothing is kept for now", extra={"action": "disk_full"})

    def failed(self, error: sqlite3.Error | OSError) -> SpoolError:
        """Remember it; returns what the submitters get."""
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if self.well:
            _log.error("a commit failed: %s", error, extra={"action": "commit_failed", "code": name})
        self._disk_full = disks.says_full(error) or self._reserve.disk_is_full()
        self.last_error = DISK_FULL if self._disk_full else f"{error} ({name})"
        try:
            # A row that may not be written beside what is there: a value of it changed on disk.
            if isinstance(error, sqlite3.IntegrityError) or (
                isinstance(error, sqlite3.Error) and is_corrupt(error)
            ):
                notes.mark(self._database.path.parent, error)
            if self._disk_full:
                self._reserve.give_up()
        except OSError as further:
            # no descriptor, a read-only mount: the submitters wait for the same recovery
            _log.error(
                "the data directory cannot be written: %s", further, extra={"action": "directory_failed"}
            )
        if self._disk_full:
            return self._full()
        return SpoolUnavailable(f"the last commit failed: {self.last_error}")

    async def recover(self) -> None:
        """A test commit, and before it the reserve again; SpoolFull or SpoolUnavailable while either fails."""
        now = str(self._clock.now()).encode()
        try:
            if self._disk_full and not self._reserve.restore():
                raise self._full()
            await self._database.transaction(lambda writer: writer.execute(queries.KEEP_FACT, ("test", now)))
        except (sqlite3.Error, OSError) as error:
            raise self.failed(error) from error
        _log.warning("commits work again", extra={"action": "commit_works"})
        self._disk_full = False
        self.last_error = None

    def _full(self) -> SpoolFull:
        return SpoolFull("the disk is full: make room, or wait", retry_after_s=self._retry_after_s())
