"""Waiting partial reports in the spool's own file, written in the commit of the submission that changes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from itertools import islice, takewhile

from spool.log.partial_reports import PartialReport, of_kind
from spool.sqlite.database import Database

# A later report replaces the one before under its key.
_PUT = "INSERT OR REPLACE INTO pending (key, at, body) VALUES (?, ?, ?)"

_FORGET = "DELETE FROM pending WHERE key = ?"

# In the order in which their time runs out.
_ALL = "SELECT key, at, body FROM pending ORDER BY at, key"

_ONE = "SELECT key, at, body FROM pending WHERE key = ?"
_UNDER = "SELECT key, at, body FROM pending WHERE key >= ? AND substr(key, 1, ?) = ?"


class SqlitePartialReports:
    """One process writes the file: what it has in its memory is what is kept."""

    is_shared = False

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Sequence[PartialReport]:
        return await self._database.read(
            lambda connection: [PartialReport(*row) for row in connection.execute(_ALL)]
        )

    async def find(
        self, keys: Collection[bytes], *, under: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        return await self._database.read(lambda connection: find(connection, keys, under=under))

    async def oldest(self, kind: bytes, *, before: float, most: int) -> Sequence[PartialReport]:
        due = takewhile(lambda report: report.at <= before, of_kind(await self.load(), kind))
        return list(islice(due, most))

    async def count(self, kind: bytes) -> tuple[int, int]:
        found = list(of_kind(await self.load(), kind))
        return len(found), sum(len(report.body) for report in found)


def find(
    connection: sqlite3.Connection, keys: Collection[bytes], *, under: Collection[bytes] = ()
) -> dict[bytes, PartialReport]:
    """Return the reports that are stored under these keys, and under keys with one of the prefixes in `under`."""
    rows = [row for key in keys for row in connection.execute(_ONE, (key,))]
    rows += [row for begin in under for row in connection.execute(_UNDER, (begin, len(begin), begin))]
    return {row[0]: PartialReport(*row) for row in rows}


def follow(connection: sqlite3.Connection, changes: Mapping[bytes, PartialReport | None]) -> None:
    """Write what a commit says of partial reports; None: it waits no more."""
    connection.executemany(_FORGET, [(key,) for key, report in changes.items() if report is None])
    connection.executemany(_PUT, [report for report in changes.values() if report is not None])
