"""Unit-cost streams and their totals in spool.sqlite. A commit of the log updates them in its transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter

from spool import streams
from spool.clock import Clock
from spool.errors import SpoolUnavailable
from spool.log.planning.plan import CommitPlan
from spool.record import NS, UNIT_COST, UnitCostOperation
from spool.settings import SpoolSettings
from spool.sql import facts
from spool.sql import streams as shared
from spool.sql.streams import GROW, TOTAL, TOTALS, SqlStreamRows, SqlStreams
from spool.sqlite.database import Database, SqliteConnection, SqliteTransactions
from spool.sqlite.log import queries
from spool.streams import estimated_bytes

SINCE = "streams since"


async def open_streams(database: Database, clock: Clock) -> SqlStreams:
    """Open the streams. The first call stores the present time, from which on totals are complete."""

    def store_beginning_of_streams(connection: sqlite3.Connection) -> None:
        facts.add_fact(SqliteConnection(connection), SINCE, repr(clock.now()).encode())

    try:
        await database.transaction(store_beginning_of_streams)
    except sqlite3.Error as error:
        # a full disk is no reason to fail, because existing data can be read; no total counts as complete then
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_FULL:
            raise SpoolUnavailable(f"the streams cannot be read: {error}") from error
    return SqlStreams(SqliteTransactions(database, "streams"))


def apply_commit(connection: sqlite3.Connection, plan: CommitPlan) -> None:
    """Apply a commit's unit-cost operations to the totals, in the same transaction."""
    records = plan.records.get(UNIT_COST)
    if not records:
        return
    rows = SqliteConnection(connection)
    since = float(facts.read_fact(rows, SINCE) or plan.at)
    operations = [record for record in records if isinstance(record, UnitCostOperation)]
    table = SqlStreamRows(rows)
    streams.apply_operations(table, operations, now=plan.at, began_at=since)
    table.flush()


def delete_some_old_totals(connection: sqlite3.Connection, *, now: float, settings: SpoolSettings) -> bool:
    """
    Delete some of the oldest totals that may be deleted. Return whether any were.

    A later operation on a deleted total starts a new one. It is incomplete, so it never replaces the cost
    service's total.
    """
    oldest = connection.execute(queries.OLDEST_COMMITTED_AT, (UNIT_COST,)).fetchone()
    newest = shared.delete_settled_totals(
        SqliteConnection(connection),
        changed_before=min(now - settings.retention_s, oldest[0] if oldest else now),
        started_before=int((now - settings.stream_retention) * NS),
        max_bytes=settings.max_stream_bytes,
    )
    if newest:
        _raise_start_of_complete_totals(connection, newest)
    return newest > 0


def _raise_start_of_complete_totals(connection: sqlite3.Connection, start_time: int) -> None:
    rows = SqliteConnection(connection)
    since = max(float(facts.read_fact(rows, SINCE) or 0), start_time / NS + 1)
    facts.store_fact(rows, SINCE, repr(since).encode())


def mark_totals_incomplete(connection: sqlite3.Connection) -> None:
    """
    After a salvage, mark all totals as incomplete, because lost rows may belong to any of them. Their sizes
    are computed again.
    """
    connection.execute("UPDATE stream_totals SET whole = 0")
    rows = SqliteConnection(connection)
    facts.delete_facts(rows, [SINCE])
    grown = Counter({name: 0 for (name,) in connection.execute("SELECT name FROM streams")})
    for total in map(TOTAL.read_row, rows.all(TOTALS)):
        grown[total.stream] += estimated_bytes(total)
    connection.execute("UPDATE stream_sizes SET bytes = 0")
    rows.run_each(GROW, [{"name": name, "bytes": size} for name, size in grown.items()])
