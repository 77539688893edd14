"""Sent billing hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spool.billing.hours import SentHour
from spool.sql.columns import Columns
from spool.sql.connection import SqlConnection, SqlTransactions
from spool.sql.statements import select, upsert

_HOUR = Columns(SentHour)
_HOURS = select("billing_hours", _HOUR.names)
_SENT = f"{_HOURS} WHERE connection = :connection AND start >= :since AND start < :until"
_PUT = upsert("billing_hours", ("connection", *_HOUR.names), "connection", "start")


class SqlBillingHours:
    """See `spool.billing.hours.BillingHours`."""

    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def sent(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        def work(connection: SqlConnection) -> dict[int, SentHour]:
            found = connection.all(_SENT, connection=connection_id, since=since, until=until)
            return {hour.start: hour for hour in map(_HOUR.read, found)}

        return await self._transactions.read(work)

    async def keep(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        """Ask for no standby: an hour that is lost here is sent again, and replaces itself upstream."""
        ordered = sorted(hours, key=lambda hour: hour.start)
        rows = [{"connection": connection_id, **_HOUR.values(hour)} for hour in ordered]
        await self._transactions.transaction(lambda connection: connection.run_each(_PUT, rows))
