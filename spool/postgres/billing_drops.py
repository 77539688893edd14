"""The billing drops that were taken: their rows move with the log, in the transaction of the commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spool.billing import drops
from spool.billing.drops import HourRows, MonthSize, StoredDrop
from spool.listing import ListPage, ListQuery
from spool.log.plan import Plan
from spool.postgres.database import Connection, Database
from spool.postgres.transactions import PostgresConnection
from spool.record import BILLING_DATA, BillingDrop
from spool.sql.lists import read_page

_DROP = ("number", "id", "connection", "month", "operation", "rows", "at")
_ADD_DROP = """
    INSERT INTO {schema}.billing_drops (number, id, connection, month, operation, rows, at)
    VALUES (%s, %s, %s, %s, %s, %s, %s)"""
_ADD_HOUR = """
    INSERT INTO {schema}.billing_rows (connection, month, hour, number, rows, bytes, stored, body)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"""
_OF_MONTH = "connection = %(connection)s AND month = %(month)s"
_REMOVE = f"""
    DELETE FROM {{schema}}.billing_rows
     WHERE {_OF_MONTH} AND (%(hours)s::bigint[] IS NULL OR hour = ANY(%(hours)s::bigint[]))"""
_REMOVE_EMPTY = f"""
    DELETE FROM {{schema}}.billing_drops
     WHERE {_OF_MONTH} AND number NOT IN (SELECT number FROM {{schema}}.billing_rows WHERE {_OF_MONTH})"""
_RESIZE = f"""
    INSERT INTO {{schema}}.billing_months (connection, month, rows, bytes, stored, newest)
    SELECT %(connection)s, %(month)s, coalesce(sum(rows), 0), coalesce(sum(bytes), 0), coalesce(sum(stored), 0),
           %(newest)s
      FROM {{schema}}.billing_rows WHERE {_OF_MONTH}
        ON CONFLICT (connection, month) DO UPDATE
       SET rows = excluded.rows, bytes = excluded.bytes, stored = excluded.stored, newest = excluded.newest"""
_SIZE = f"""
    SELECT coalesce(sum(rows), 0)::bigint, coalesce(sum(bytes), 0)::bigint,
           (coalesce(sum(length(body)), 0) + coalesce(max(bytes), 0))::bigint
      FROM {{schema}}.billing_rows WHERE {_OF_MONTH} AND hour <> ALL(%(hours)s::bigint[])"""
_MONTH = """
    SELECT hour, rows, bytes, body FROM {schema}.billing_rows
     WHERE connection = %s AND month = %s ORDER BY hour, number"""
_HAS = "SELECT EXISTS (SELECT 1 FROM {schema}.billing_drops WHERE connection = %s AND month = %s AND id = %s)"
_STORED = "SELECT coalesce(sum(stored), 0)::bigint FROM {schema}.billing_months"
_NEWEST = "SELECT connection, max(newest) FROM {schema}.billing_months GROUP BY connection"
# Whoever changes months has their rows here first, in this order.
_LOCK = """
    SELECT 1 FROM {schema}.billing_months m
      JOIN unnest(%s::text[], %s::text[]) AS changed (connection, month)
           ON m.connection = changed.connection AND m.month = changed.month
  ORDER BY m.connection, m.month FOR UPDATE OF m"""
_OF_CONNECTION = """
    SELECT connection, month FROM {schema}.billing_months WHERE connection = %s
  ORDER BY connection, month FOR UPDATE"""
_OLD = """
    SELECT connection, month FROM {schema}.billing_months WHERE month < %s
  ORDER BY month, connection LIMIT 1 FOR UPDATE"""
_TABLES = ("billing_rows", "billing_drops", "billing_months")


class PostgresDropRows:
    """See `spool.billing.drops.DropRows`: on a connection, inside its transaction, which holds the head."""

    def __init__(self, connection: Connection, database: Database) -> None:
        self._connection = connection
        self._sql = database.sql

    def add(self, drop: StoredDrop, hours: Sequence[HourRows]) -> None:
        row = (drop.number, drop.id, drop.connection, drop.month, drop.operation, drop.rows, drop.at)
        self._connection.execute(self._sql(_ADD_DROP), row)
        of_drop = (drop.connection, drop.month)
        rows = [(*of_drop, one.hour, drop.number, one.rows, one.size, one.stored, one.body) for one in hours]
        with self._connection.cursor() as cursor:
            cursor.executemany(self._sql(_ADD_HOUR), rows)
        named = {"connection": drop.connection, "month": drop.month, "newest": drop.at}
        self._connection.execute(self._sql(_RESIZE), named)

    def remove(self, connection: str, month: str, hours: Collection[int] | None) -> None:
        named = {"connection": connection, "month": month, "hours": None if hours is None else list(hours)}
        self._connection.execute(self._sql(_REMOVE), named)
        self._connection.execute(self._sql(_REMOVE_EMPTY), named)


class PostgresBillingDrops:
    """See `spool.billing.drops.BillingDrops`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, connection: str, query: ListQuery) -> ListPage[StoredDrop]:
        within = ("connection = :of_connection", {"of_connection": connection})
        sql = self._database.sql
        return await self._database.snapshot(
            lambda on: read_page(PostgresConnection(on, sql), "billing_drops", _DROP, query, _drop, within=within)
        )

    async def month(self, connection: str, month: str) -> Sequence[HourRows]:
        found = await self._all(_MONTH, (connection, month))
        return [HourRows(hour=hour, rows=rows, size=size, body=body) for hour, rows, size, body in found]

    async def has(self, connection: str, month: str, id: str) -> bool:
        [[found]] = await self._all(_HAS, (connection, month, id))
        return bool(found)

    async def size(self, connection: str, month: str, without: Collection[int] = ()) -> MonthSize:
        named = {"connection": connection, "month": month, "hours": list(without)}
        [[rows, size, held]] = await self._all(_SIZE, named)
        return MonthSize(rows=rows, bytes=size, held=held)

    async def stored(self) -> int:
        [[size]] = await self._all(_STORED)
        return int(size)

    async def newest(self) -> Mapping[str, float]:
        return dict(await self._all(_NEWEST))

    async def forget(self, connection: str) -> None:
        """As `trim`, without asking for a standby: what comes back goes again, and nothing of it leaves."""

        def work(on: Connection) -> int:
            months = on.execute(self._database.sql(_OF_CONNECTION), (connection,)).fetchall()
            self._remove(on, months)
            return len(months)

        while await self._database.transaction(work):  # a month may have come meanwhile
            pass

    async def trim(self, before: str) -> int:
        def work(on: Connection) -> int:
            """One month of one connection, so that no commit waits long."""
            months = on.execute(self._database.sql(_OLD), (before,)).fetchall()
            self._remove(on, months)
            return len(months)

        gone = 0
        while await self._database.transaction(work):
            gone += 1
        return gone

    def _remove(self, on: Connection, months: Sequence[Sequence[object]]) -> None:
        """All of some months, which are locked."""
        for month in months:
            for table in _TABLES:
                statement = f"DELETE FROM {{schema}}.{table} WHERE connection = %s AND month = %s"
                on.execute(self._database.sql(statement), month)

    async def _all(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        return await self._database.read(lambda on: on.execute(self._database.sql(statement), values).fetchall())


def follow(connection: Connection, database: Database, plan: Plan) -> None:
    """What a commit's drops do to the months, in its transaction."""
    records = plan.records.get(BILLING_DATA)
    if records:
        months = {(each.connection_id, each.month) for each in records if isinstance(each, BillingDrop) and each.month}
        names, texts = [name for name, _ in months], [month for _, month in months]
        connection.execute(database.sql(_LOCK), (names, texts))
        drops.apply(PostgresDropRows(connection, database), plan.first[BILLING_DATA], records, at=plan.at)


def _drop(row: Sequence[Any]) -> StoredDrop:
    return StoredDrop(**dict(zip(_DROP, row, strict=True)))
