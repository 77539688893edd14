"""Rows that change with a commit equal those in memory: totals of streams and billing drops."""

from __future__ import annotations

import random
from functools import partial

import msgspec

from spool import billing, streams
from spool.listing import ASCENDING, ListQuery, SortField
from spool.postgres.database import Connection, PostgresTransactions
from spool.postgres.streams import (
    DeletableTotals,
    PostgresStreamRows,
    PostgresStreams,
    delete_unchanged_totals,
    oldest_deletable_totals,
)
from spool.record import NS, HourlyBillingFile, UnitCostOperation
from spool.settings import SpoolSettings
from spool.sql.billing import SqlBillingDropRows, SqlBillingDrops, SqlBillingHours
from spool.sql.connection import SqlConnection
from spool.sql.streams import SqlStreamRows, SqlStreams
from spool.sqlite.database import SqliteTransactions
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from spool.streams import TotalsPart
from tests.exporters.spools import record_id
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import migrated
from tests.spool.postgres_cluster import Schema

NOON = 1_790_000_000 // 3600 * 3600
PAGE = ListQuery(sort=SortField("value", numeric=True), order=ASCENDING, identity="key", limit=5)


def operation(n: int, dice: random.Random) -> UnitCostOperation:
    what = dice.choices([streams.SUM, streams.REPLACE, streams.DELETE, streams.DROP], [20, 5, 3, 1])[0]
    return UnitCostOperation(
        id=record_id(n),
        operation=what,
        stream=dice.choice(["calls", "seats"]),
        stream_type="allocation",
        start_time=(NOON + 3600 * dice.randrange(3)) * NS,
        granularity="HOURLY",
        element_name=dice.choice(["acme", "Zürich"]),
        dimensions={"region": [dice.choice(["eu", "us"])]},
        value=f"{dice.randrange(1, 999)}.{dice.randrange(99)}",
    )


async def apply(tables: SqliteTransactions, operations: list[UnitCostOperation]) -> None:
    def work(connection: SqlConnection) -> None:
        rows = SqlStreamRows(connection)
        streams.apply_operations(rows, operations, now=1.0, began_at=0.0)
        rows.flush()

    await tables.transaction(work)


async def test_totals_are_those_of_memory(fresh_schema: Schema) -> None:
    """After every commit, values, sizes and a filtered page of stream totals in the rows equal those in memory."""
    dice, tables = random.Random(22), SqliteTransactions(MemoryDatabase(SPOOL), "tables")
    memory = SqlStreams(tables)
    async with migrated(fresh_schema) as database:
        kept = await PostgresStreams.open(database, MovedClock())
        for turn in range(8):
            operations = [operation(turn * 100 + n, dice) for n in range(20)]

            def commit(connection: Connection, operations: list[UnitCostOperation] = operations) -> None:
                rows = PostgresStreamRows(connection, database)
                rows.query_rows_and_return_reader(operations)()
                streams.apply_operations(rows, operations, now=1.0, began_at=0.0)
                rows.flush()

            await database.transaction(commit)
            await apply(tables, operations)
            for name in ("calls", "seats"):
                shown, expected = await kept.stream_totals(name), await memory.stream_totals(name)
                assert [total.value for total in expected] == [total.value for total in shown]
                part = TotalsPart(since=NOON * NS, until=(NOON + 7200) * NS, dimensions={"region": ["eu"]})
                pages = [await rows.totals_page(name, PAGE, part) for rows in (memory, kept)]
                assert pages[0].keys == pages[1].keys and pages[0].total == pages[1].total
            sizes = [
                {size.name: size.bytes for size in await rows.stream_sizes() if size.bytes}
                for rows in (memory, kept)
            ]
            assert sizes[0] == sizes[1]


async def test_a_text_that_postgresql_cannot_keep(fresh_schema: Schema) -> None:
    """
    A text that PostgreSQL cannot store gets replacement characters, so that neither its commit nor a list fails.
    """
    async with migrated(fresh_schema) as database:
        kept = await PostgresStreams.open(database, MovedClock())
        strange = {"element_name": "\0", "dimensions": {"a\0": ["\0"]}, "operation": streams.SUM}
        one = msgspec.structs.replace(operation(1, random.Random(1)), **strange)

        def commit(connection: Connection) -> None:
            rows = PostgresStreamRows(connection, database)
            streams.apply_operations(rows, [one], now=1.0, began_at=0.0)
            rows.flush()

        await database.transaction(commit)
        page = await kept.totals_page(one.stream, PAGE, TotalsPart(dimensions={"a\0": ["\0"]}))
        assert ["\N{REPLACEMENT CHARACTER}"] == [total.element_name for total in page.rows]


async def test_settled_totals_go_after_their_time(fresh_schema: Schema) -> None:
    """Later values of a deleted total are marked as not whole."""
    dice = random.Random(1)
    async with migrated(fresh_schema) as database:
        kept = await PostgresStreams.open(database, MovedClock(0.0))
        one = msgspec.structs.replace(operation(1, dice), operation=streams.SUM, stream="calls")

        def commit(connection: Connection) -> None:
            rows = PostgresStreamRows(connection, database)
            streams.apply_operations(rows, [one], now=float(NOON), began_at=0.0)
            rows.flush()

        await database.transaction(commit)
        settings = SpoolSettings()
        late = NOON + settings.stream_retention + settings.retention + 86400
        for at, gone in ((float(NOON), False), (late, True), (late, False)):

            def settled(connection: Connection, at: float = at) -> DeletableTotals | None:
                return oldest_deletable_totals(
                    connection, database, now=at, settings=settings, oldest_at=None
                )

            totals = await database.read(settled)
            assert gone == (totals is not None)
            if totals is not None:
                changed = totals._replace(updated=[at - 1 for at in totals.updated])
                await database.pool.run_pipelined(
                    partial(delete_unchanged_totals, database=database, totals=changed)
                )
                # the row is not deleted, because it has changed since it was read
                assert 1 == len(await kept.stream_totals("calls"))
                await database.pool.run_pipelined(
                    partial(delete_unchanged_totals, database=database, totals=totals)
                )
        assert await kept.stream_totals("calls") == []
        assert (await kept.stream_sizes())[0].bytes == 0


async def test_drops_are_those_of_memory(fresh_schema: Schema) -> None:
    """
    After every commit, the months of billing drops, their sizes and the list in the rows equal those in memory.
    """
    dice, tables = random.Random(7), SqliteTransactions(MemoryDatabase(SPOOL), "tables")
    memory = SqlBillingDrops(tables)
    async with migrated(fresh_schema) as database:
        kept = SqlBillingDrops(PostgresTransactions(database))
        for n in range(1, 13):
            rows = [
                {
                    "time/usage_start": f"2026-11-01T{dice.randrange(3):02}:20:00Z",
                    "cost/cost": str(dice.random()),
                }
                for _ in range(3)
            ]
            drop = HourlyBillingFile(
                id=record_id(n), connection_id=dice.choice("ab"), body=msgspec.json.encode({"data": rows}), rows=3,
                month=dice.choice(["2026-10", "2026-11"]), operation=dice.choice(billing.OPERATIONS),
            )  # fmt: skip

            def work(connection: SqlConnection, n: int = n, billing_file: HourlyBillingFile = drop) -> None:
                billing.apply_billing_drops(
                    SqlBillingDropRows(connection), n, [billing_file], arrived_at=float(n)
                )

            await PostgresTransactions(database).transaction(work)
            await tables.transaction(work)
        for connection in "ab":
            query = ListQuery(sort=SortField("at"), order=ASCENDING, identity="number", limit=50)
            assert await memory.page(connection, query) == await kept.page(connection, query)
            for month in ("2026-10", "2026-11"):
                assert await memory.month_hours(connection, month) == await kept.month_hours(
                    connection, month
                )
                assert await memory.month_size(connection, month, [0]) == await kept.month_size(
                    connection, month, [0]
                )
        assert await memory.stored_bytes() == await kept.stored_bytes()
        assert (
            await memory.last_billing_drop_at_by_connection()
            == await kept.last_billing_drop_at_by_connection()
        )
        assert await memory.delete_old_months("2026-11") == await kept.delete_old_months("2026-11")
        await kept.delete_connection("a")
        assert {"b"} >= set(await kept.last_billing_drop_at_by_connection())
        assert {} == await SqlBillingHours(PostgresTransactions(database)).sent_hours("a", 0, 10)
