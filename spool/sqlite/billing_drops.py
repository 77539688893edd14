"""The billing drops that were taken, in the spool's own file, so that they move with the log."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from spool.billing import drops
from spool.billing.drops import HourRows, MonthSize, StoredDrop
from spool.errors import SpoolUnavailable
from spool.listing import ListPage, ListQuery
from spool.log.plan import Plan
from spool.record import BILLING_DATA
from spool.sql.lists import read_page
from spool.sqlite.database import Database
from spool.sqlite.transactions import SqliteConnection

T = TypeVar("T")
_NAMES = ("number", "id", "connection", "month", "operation", "rows", "at")

_ADD_DROP = """
    INSERT OR REPLACE INTO billing_drops (number, id, connection, month, operation, rows, at)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_ADD_HOUR = """
    INSERT OR REPLACE INTO billing_rows (connection, month, hour, number, rows, bytes, stored, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_OF_MONTH = "connection = :connection AND month = :month"
_HOURS = "hour IN (SELECT value FROM json_each(:hours))"
_REMOVE_EMPTY = f"""
    DELETE FROM billing_drops
     WHERE {_OF_MONTH} AND number NOT IN (SELECT number FROM billing_rows WHERE {_OF_MONTH})"""
_SUMS = "SELECT sum(rows), sum(bytes), sum(stored) FROM billing_rows"
_SIZE = "SELECT sum(rows), sum(bytes), sum(length(body)) + max(bytes) FROM billing_rows"
_PUT_MONTH = """
    INSERT OR REPLACE INTO billing_months (connection, month, rows, bytes, stored, newest)
    VALUES (:connection, :month, :rows, :bytes, :stored, :newest)"""
_RESIZE = """
    INSERT INTO billing_months (connection, month, rows, bytes, stored, newest)
    SELECT r.connection, r.month, sum(r.rows), sum(r.bytes), sum(r.stored),
           coalesce((SELECT max(at) FROM billing_drops d WHERE d.connection = r.connection AND d.month = r.month), 0)
      FROM billing_rows r GROUP BY r.connection, r.month"""
_MONTH = """
    SELECT hour, rows, bytes, body FROM billing_rows
     WHERE connection = ? AND month = ? ORDER BY hour, number"""
_TABLES = ("billing_rows", "billing_drops", "billing_months")


class SqliteDropRows:
    """See `spool.billing.drops.DropRows`: on a connection, inside its transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, drop: StoredDrop, hours: Sequence[HourRows]) -> None:
        row = (drop.number, drop.id, drop.connection, drop.month, drop.operation, drop.rows, drop.at)
        self._connection.execute(_ADD_DROP, row)
        of_drop = (drop.connection, drop.month)
        self._connection.executemany(
            _ADD_HOUR,
            [(*of_drop, one.hour, drop.number, one.rows, one.size, one.stored, one.body) for one in hours],
        )
        named = {"connection": drop.connection, "month": drop.month}
        rows, size, stored = self._connection.execute(f"{_SUMS} WHERE {_OF_MONTH}", named).fetchone()
        sums = {"rows": rows or 0, "bytes": size or 0, "stored": stored or 0, "newest": drop.at}
        self._connection.execute(_PUT_MONTH, {**named, **sums})

    def remove(self, connection: str, month: str, hours: Collection[int] | None) -> None:
        named = {"connection": connection, "month": month, "hours": json.dumps(list(hours or ()))}
        which = _OF_MONTH if hours is None else f"{_OF_MONTH} AND {_HOURS}"
        self._connection.execute(f"DELETE FROM billing_rows WHERE {which}", named)
        self._connection.execute(_REMOVE_EMPTY, named)


class SqliteBillingDrops:
    """See `spool.billing.drops.BillingDrops`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, connection: str, query: ListQuery) -> ListPage[StoredDrop]:
        within = ("connection = :of_connection", {"of_connection": connection})
        return await self._guarded(
            self._database.snapshot(
                lambda on: read_page(SqliteConnection(on), "billing_drops", _NAMES, query, _drop, within=within)
            )
        )

    async def month(self, connection: str, month: str) -> Sequence[HourRows]:
        def work(on: sqlite3.Connection) -> list[HourRows]:
            found = on.execute(_MONTH, (connection, month))
            return [HourRows(hour=hour, rows=rows, size=size, body=body) for hour, rows, size, body in found]

        return await self._read(work)

    async def has(self, connection: str, month: str, id: str) -> bool:
        query = "SELECT EXISTS (SELECT 1 FROM billing_drops WHERE connection = ? AND month = ? AND id = ?)"
        return await self._read(lambda on: bool(on.execute(query, (connection, month, id)).fetchone()[0]))

    async def size(self, connection: str, month: str, without: Collection[int] = ()) -> MonthSize:
        named = {"connection": connection, "month": month, "hours": json.dumps(list(without))}

        def work(on: sqlite3.Connection) -> MonthSize:
            rows, size, held = on.execute(f"{_SIZE} WHERE {_OF_MONTH} AND NOT {_HOURS}", named).fetchone()
            return MonthSize(rows=rows or 0, bytes=size or 0, held=held or 0)

        return await self._read(work)

    async def stored(self) -> int:
        query = "SELECT coalesce(sum(stored), 0) FROM billing_months"
        return await self._read(lambda on: int(on.execute(query).fetchone()[0]))

    async def newest(self) -> Mapping[str, float]:
        query = "SELECT connection, max(newest) FROM billing_months GROUP BY connection"
        return await self._read(lambda on: dict(on.execute(query).fetchall()))

    async def forget(self, connection: str) -> None:
        def work(on: sqlite3.Connection) -> None:
            for table in _TABLES:
                on.execute(f"DELETE FROM {table} WHERE connection = ?", (connection,))

        await self._guarded(self._database.transaction(work))

    async def trim(self, before: str) -> int:
        def work(on: sqlite3.Connection) -> int:
            """One month of one connection, so that no commit waits long."""
            found = on.execute("SELECT connection, month FROM billing_months WHERE month < ? LIMIT 1", (before,))
            row = found.fetchone()
            if row is None:
                return 0
            for table in _TABLES:
                on.execute(f"DELETE FROM {table} WHERE connection = ? AND month = ?", row)
            return 1

        gone = 0
        while await self._guarded(self._database.transaction(work)):
            gone += 1
        return gone

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._guarded(self._database.read(work))

    async def _guarded(self, running: Awaitable[T]) -> T:
        try:
            return await running
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"billing drops cannot be read or written: {error}") from error


def follow(connection: sqlite3.Connection, plan: Plan) -> None:
    """What a commit's drops do to the months, in its transaction."""
    records = plan.records.get(BILLING_DATA)
    if records:
        drops.apply(SqliteDropRows(connection), plan.first[BILLING_DATA], records, at=plan.at)


def resize(connection: sqlite3.Connection) -> None:
    """After a salvage: the sizes of months from the rows that are left."""
    connection.execute("DELETE FROM billing_months")
    connection.execute(_RESIZE)


def _drop(row: Sequence[Any]) -> StoredDrop:
    return StoredDrop(**dict(zip(_NAMES, row, strict=True)))
