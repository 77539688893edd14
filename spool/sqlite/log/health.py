"""
Whether the log can keep what it is given: known from the last commit, and after a failed one from a test commit.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

from spool.clock import Clock
from spool.errors import SpoolError, SpoolFull, SpoolUnavailable
from spool.sqlite.database import Database
from spool.sqlite.log import queries
from spool.sqlite.log.entries import is_corrupt
from spool.sqlite.recovery import met_damage
from spool.sqlite.reserve import Reserve

_log = logging.getLogger(__name__)


class LogHealth:
    """
    Taken from the last real write.

    After a failed flush nothing is acknowledged until a test commit has passed. SQLite writes the frames of a failed
    commit again in the same place, so a page that the kernel dropped after the error does not stay lost.
    """

    def __init__(self, database: Database, reserve: Reserve, clock: Clock, retry_after_s: Callable[[], int]) -> None:
        self._database = database
        self._reserve = reserve
        self._clock = clock
        self._retry_after_s = retry_after_s
        self._disk_full = False
        self.last_error: str | None = None

    @property
    def well(self) -> bool:
        return self.last_error is None

    def begin(self) -> None:
        """A start on a full disk is a start: reading and deleting work, keeping has to wait."""
        if not self._reserve.restore():
            self._disk_full = True
            self.last_error = "the disk is full"
            _log.error("there is no room for the reserve: nothing is kept for now", extra={"action": "disk_full"})

    def failed(self, error: sqlite3.Error) -> SpoolError:
        """Remember it; returns what the submitters get."""
        if is_corrupt(error):
            met_damage(self._database.path.parent, error)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        self._disk_full = name == "SQLITE_FULL" or self._reserve.disk_is_full()
        if self.well:
            _log.error("a commit failed: %s", error, extra={"action": "commit_failed", "code": name})
        if self._disk_full:
            self._reserve.give_up()
            self.last_error = "the disk is full"
            return SpoolFull("the disk is full: make room, or wait", retry_after_s=self._retry_after_s())
        self.last_error = f"{error} ({name})"
        return SpoolUnavailable(f"the last commit failed: {self.last_error}")

    async def recover(self) -> None:
        """A test commit, and before it the reserve again; SpoolFull or SpoolUnavailable while either fails."""
        if self._disk_full and not self._reserve.restore():
            raise SpoolFull("the disk is full: make room, or wait", retry_after_s=self._retry_after_s())
        now = str(self._clock.now()).encode()
        try:
            await self._database.transaction(lambda writer: writer.execute(queries.KEEP_FACT, ("test", now)))
        except sqlite3.Error as error:
            raise self.failed(error) from error
        _log.warning("commits work again", extra={"action": "commit_works"})
        self._disk_full = False
        self.last_error = None
