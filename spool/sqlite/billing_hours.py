"""Sent billing hours in the spool's own file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from spool.billing.hours import SentHour
from spool.errors import SpoolUnavailable
from spool.sqlite.database import Database

_SENT = "SELECT start, hash, rows, bytes, sent_at FROM billing_hours WHERE connection = ? AND start >= ? AND start < ?"
_PUT = "INSERT OR REPLACE INTO billing_hours (connection, start, hash, rows, bytes, sent_at) VALUES (?, ?, ?, ?, ?, ?)"


class SqliteBillingHours:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def sent(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        def work(connection: sqlite3.Connection) -> dict[int, SentHour]:
            found = connection.execute(_SENT, (connection_id, since, until))
            return {
                start: SentHour(start=start, hash=hash, rows=rows, bytes=size, sent_at=at)
                for start, hash, rows, size, at in found
            }

        try:
            return await self._database.read(work)
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"billing hours cannot be read: {error}") from error

    async def keep(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        rows = [(connection_id, hour.start, hour.hash, hour.rows, hour.bytes, hour.sent_at) for hour in hours]
        try:
            await self._database.transaction(lambda connection: connection.executemany(_PUT, rows))
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"billing hours cannot be written: {error}") from error
