"""Waiting halves in the spool's own file, in transactions of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from spool.errors import SpoolUnavailable
from spool.pending import Kept
from spool.sqlite.database import Database
from spool.sqlite.migrations import script

# A half that says more takes the place of the half before.
_PUT = "INSERT OR REPLACE INTO pending (key, at, body) VALUES (?, ?, ?)"

_FORGET = "DELETE FROM pending WHERE key = ?"

# In the order in which their time runs out.
_ALL = "SELECT key, at, body FROM pending ORDER BY at, key"


class SqlitePending:
    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, database: Database) -> SqlitePending:
        """Makes its table when the file has none yet."""
        await database.transaction(lambda connection: connection.execute(script("pending.sql")).close())
        return cls(database)

    async def put(self, halves: Sequence[Kept]) -> None:
        await self._write(_PUT, halves)

    async def forget(self, keys: Sequence[bytes]) -> None:
        await self._write(_FORGET, [(key,) for key in keys])

    async def load(self) -> Sequence[Kept]:
        return await self._database.read(lambda connection: [Kept(*row) for row in connection.execute(_ALL)])

    async def _write(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        if not rows:
            return
        try:
            await self._database.transaction(lambda connection: connection.executemany(statement, rows).close())
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"the halves of reports cannot be written: {error}") from error
