"""Sent billing hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spool.billing.hours import SentHour
from spool.postgres.database import Connection, Database

_SENT = """
    SELECT start, hash, rows, bytes, sent_at FROM {schema}.billing_hours
     WHERE connection = %s AND start >= %s AND start < %s"""
_PUT = """
    INSERT INTO {schema}.billing_hours (connection, start, hash, rows, bytes, sent_at)
    VALUES (%s, %s, %s, %s, %s, %s)
        ON CONFLICT (connection, start) DO UPDATE
       SET hash = excluded.hash, rows = excluded.rows, bytes = excluded.bytes, sent_at = excluded.sent_at"""


class PostgresBillingHours:
    """See `spool.billing.hours.BillingHours`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sent(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        def work(connection: Connection) -> dict[int, SentHour]:
            found = connection.execute(self._database.sql(_SENT), (connection_id, since, until))
            return {
                start: SentHour(start=start, hash=hash, rows=rows, bytes=size, sent_at=at)
                for start, hash, rows, size, at in found
            }

        return await self._database.read(work)

    async def keep(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        """Without asking for a standby: an hour of which that was lost is sent again, and replaces itself upstream."""
        rows = [
            (connection_id, hour.start, hour.hash, hour.rows, hour.bytes, hour.sent_at)
            for hour in sorted(hours, key=lambda hour: hour.start)
        ]

        def work(connection: Connection) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(self._database.sql(_PUT), rows)

        await self._database.transaction(work)
