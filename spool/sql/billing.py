"""
Received billing drops (hourly files), written in the log's transactions, and the hours of cost that were
sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spool import billing
from spool.billing import HourRows, MonthSize, SentHour, StoredBillingFile
from spool.listing import ListPage, ListQuery
from spool.log.planning.plan import CommitPlan
from spool.record import BILLING_DATA, HourlyBillingFile
from spool.sql.columns import RowColumns, select_sql, upsert_sql
from spool.sql.connection import SqlConnection, SqlTransactions
from spool.sql.lists import read_page

_DROP = RowColumns(StoredBillingFile)
_ADD_DROP = upsert_sql("billing_drops", _DROP.names, "number")
_OF_MONTH = "connection = :connection AND month = :month"
_HOUR = ("connection", "month", "hour", "number", "rows", "bytes", "stored", "body")
_ADD_HOUR = upsert_sql("billing_rows", _HOUR, *_HOUR[:4])
_REMOVE = f"DELETE FROM {{schema}}.billing_rows WHERE {_OF_MONTH}"
_REMOVE_EMPTY = f"""
    DELETE FROM {{schema}}.billing_drops
     WHERE {_OF_MONTH} AND number NOT IN (SELECT number FROM {{schema}}.billing_rows WHERE {_OF_MONTH})"""
_RESIZE = f"""
    INSERT INTO {{schema}}.billing_months (connection, month, rows, bytes, stored, newest)
    SELECT :connection, :month, coalesce(sum(rows), 0), coalesce(sum(bytes), 0), coalesce(sum(stored), 0),
           :newest
      FROM {{schema}}.billing_rows WHERE {_OF_MONTH}
        ON CONFLICT (connection, month) DO UPDATE
       SET rows = excluded.rows, bytes = excluded.bytes, stored = excluded.stored, newest = excluded.newest"""
_SIZE = f"""
    SELECT CAST(coalesce(sum(rows), 0) AS bigint), CAST(coalesce(sum(bytes), 0) AS bigint),
           CAST(coalesce(sum(length(body)), 0) + coalesce(max(bytes), 0) AS bigint)
      FROM {{schema}}.billing_rows WHERE {_OF_MONTH} AND hour NOT IN :hours"""
_ROWS = select_sql("billing_rows", ("hour", "rows", "bytes", "body", "number"))
_MONTH = f"{_ROWS} WHERE {_OF_MONTH} ORDER BY hour, number"
_HAS = f"SELECT EXISTS (SELECT 1 FROM {{schema}}.billing_drops WHERE {_OF_MONTH} AND id = :id)"
_STORED = "SELECT CAST(coalesce(sum(stored), 0) AS bigint) FROM {schema}.billing_months"
_MONTHS = """
    SELECT month, newest FROM {schema}.billing_months
     WHERE connection = :connection AND rows > 0 ORDER BY month"""
_NEWEST = "SELECT connection, max(newest) FROM {schema}.billing_months GROUP BY connection"
# locked in the order of connections and months, so that writers cannot deadlock
_LOCK = f"SELECT 1 FROM {{schema}}.billing_months WHERE {_OF_MONTH} {{for_update}}"
_OF_CONNECTION = """
    SELECT connection, month FROM {schema}.billing_months WHERE connection = :connection
  ORDER BY connection, month LIMIT 1 {for_update}"""
_OLD = """
    SELECT connection, month FROM {schema}.billing_months WHERE month < :before
  ORDER BY month, connection LIMIT 1 {for_update}"""
_TABLES = ("billing_rows", "billing_drops", "billing_months")
_REMOVE_MONTH = [f"DELETE FROM {{schema}}.{table} WHERE {_OF_MONTH}" for table in _TABLES]


class SqlBillingDropRows:
    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection

    def add_billing_drop(self, billing_file: StoredBillingFile, hours: Sequence[HourRows]) -> None:
        self._connection.run(_ADD_DROP, **_DROP.stored_values(billing_file))
        month = {"connection": billing_file.connection, "month": billing_file.month}
        rows = [
            {
                **month,
                "hour": billing_hour.hour,
                "number": billing_file.number,
                "rows": billing_hour.rows,
                "bytes": billing_hour.size,
                "stored": billing_hour.disk_bytes,
                "body": billing_hour.body,
            }
            for billing_hour in hours
        ]
        self._connection.run_each(_ADD_HOUR, rows)
        self._connection.run(_RESIZE, **month, newest=billing_file.at)

    def delete_hours(self, connection: str, month: str, hours: Collection[int] | None) -> None:
        month_key = {"connection": connection, "month": month}
        if hours is None:
            self._connection.run(_REMOVE, **month_key)
        else:
            self._connection.run(f"{_REMOVE} AND hour IN :hours", **month_key, hours=list(hours))
        self._connection.run(_REMOVE_EMPTY, **month_key)


class SqlBillingDrops:
    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def page(self, connection: str, query: ListQuery) -> ListPage[StoredBillingFile]:
        within = ("connection = :of_connection", {"of_connection": connection})
        return await self._transactions.snapshot(
            lambda on: read_page(on, "billing_drops", _DROP.names, query, _DROP.read_row, within=within)
        )

    async def month_hours(self, connection: str, month: str) -> Sequence[HourRows]:
        hours = await self._read_rows(_MONTH, connection=connection, month=month)
        return [
            HourRows(hour=hour, rows=rows, size=size, body=body, drop=drop)
            for hour, rows, size, body, drop in hours
        ]

    async def last_drop_at_by_month(self, connection: str) -> Mapping[str, float]:
        return dict(await self._read_rows(_MONTHS, connection=connection))

    async def has_billing_drop(self, connection: str, month: str, id: str) -> bool:
        [[exists]] = await self._read_rows(_HAS, connection=connection, month=month, id=id)
        return bool(exists)

    async def month_size(self, connection: str, month: str, without: Collection[int] = ()) -> MonthSize:
        [[rows, size, held]] = await self._read_rows(
            _SIZE, connection=connection, month=month, hours=list(without)
        )
        return MonthSize(rows=rows, bytes=size, held=held)

    async def stored_bytes(self) -> int:
        [[size]] = await self._read_rows(_STORED)
        return int(size)

    async def last_billing_drop_at_by_connection(self) -> Mapping[str, float]:
        return dict(await self._read_rows(_NEWEST))

    async def delete_connection(self, connection: str) -> None:
        """
        Delete a connection's rows without waiting for a standby. Drops that a failover restores are deleted
        again and never sent.
        """
        await self._delete_selected_months(_OF_CONNECTION, connection=connection)

    async def delete_old_months(self, before: str) -> int:
        return await self._delete_selected_months(_OLD, before=before)

    async def _delete_selected_months(self, months_query: str, **values: object) -> int:
        """Delete months, each in a transaction, so that no commit waits long. Return their number."""

        def delete_months(on: SqlConnection) -> int:
            rows = on.all(months_query, **values)
            for connection, month in rows:
                for statement in _REMOVE_MONTH:
                    on.run(statement, connection=connection, month=month)
            return len(rows)

        removed = 0
        while count := await self._transactions.transaction(delete_months):
            removed += count
        return removed

    async def _read_rows(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return await self._transactions.read(lambda on: on.all(statement, **values))


def apply_billing_drops_of_commit(connection: SqlConnection, plan: CommitPlan) -> None:
    records = plan.records.get(BILLING_DATA)
    if records:
        drops = [drop for drop in records if isinstance(drop, HourlyBillingFile)]
        months = {(drop.connection_id, drop.month) for drop in drops if drop.month}
        for of_connection, month in sorted(months):
            connection.run(_LOCK, connection=of_connection, month=month)
        billing.apply_billing_drops(
            SqlBillingDropRows(connection), plan.first[BILLING_DATA], records, arrived_at=plan.at
        )


# -- hours that were sent ------------------------------------------------------------------------------------


_SENT_HOUR = RowColumns(SentHour)
_SENT_HOURS = select_sql("billing_hours", _SENT_HOUR.names)
_SENT = f"{_SENT_HOURS} WHERE connection = :connection AND start >= :since AND start < :until"
_PUT_SENT = upsert_sql("billing_hours", ("connection", *_SENT_HOUR.names), "connection", "start")


class SqlBillingHours:
    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def sent_hours(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        def read_hours(connection: SqlConnection) -> dict[int, SentHour]:
            rows = connection.all(_SENT, connection=connection_id, since=since, until=until)
            return {hour.start: hour for hour in map(_SENT_HOUR.read_row, rows)}

        return await self._transactions.read(read_hours)

    async def store_hours(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        """
        Store hours without waiting for a standby. A lost hour is sent again, and replaces itself upstream.
        """
        ordered = sorted(hours, key=lambda hour: hour.start)
        rows = [{"connection": connection_id, **_SENT_HOUR.stored_values(hour)} for hour in ordered]
        await self._transactions.transaction(lambda connection: connection.run_each(_PUT_SENT, rows))
