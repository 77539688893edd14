"""Waiting halves in the spool's own file, written in the commit of the submission that brings or needs them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from spool.log.pending import Kept
from spool.sqlite.database import Database

# A half that says more takes the place of the half before.
_PUT = "INSERT OR REPLACE INTO pending (key, at, body) VALUES (?, ?, ?)"

_FORGET = "DELETE FROM pending WHERE key = ?"

# In the order in which their time runs out.
_ALL = "SELECT key, at, body FROM pending ORDER BY at, key"


class SqlitePending:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Sequence[Kept]:
        return await self._database.read(lambda connection: [Kept(*row) for row in connection.execute(_ALL)])


def follow(connection: sqlite3.Connection, halves: Mapping[bytes, Kept | None]) -> None:
    """What a commit says of halves; None: it waits no more."""
    connection.executemany(_FORGET, [(key,) for key, half in halves.items() if half is None])
    connection.executemany(_PUT, [half for half in halves.values() if half is not None])
