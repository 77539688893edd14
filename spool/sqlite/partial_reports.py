"""Waiting partial reports in the spool's own file, written in the commit of the submission that changes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from spool.log.partial_reports import PartialReport
from spool.sqlite.database import Database

# A later report replaces the one before under its key.
_PUT = "INSERT OR REPLACE INTO pending (key, at, body) VALUES (?, ?, ?)"

_FORGET = "DELETE FROM pending WHERE key = ?"

# In the order in which their time runs out.
_ALL = "SELECT key, at, body FROM pending ORDER BY at, key"


class SqlitePartialReports:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Sequence[PartialReport]:
        return await self._database.read(lambda connection: [PartialReport(*row) for row in connection.execute(_ALL)])


def follow(connection: sqlite3.Connection, changes: Mapping[bytes, PartialReport | None]) -> None:
    """Write what a commit says of partial reports; None: it waits no more."""
    connection.executemany(_FORGET, [(key,) for key, report in changes.items() if report is None])
    connection.executemany(_PUT, [report for report in changes.values() if report is not None])
