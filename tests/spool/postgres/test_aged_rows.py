"""Old rows are deleted in steps, so that no statement takes long, however many rows there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from spool.errors import SpoolError
from spool.log.retention import SERIES_AGE_S
from spool.postgres import partial_reports
from spool.postgres.database import Connection, Database
from spool.postgres.log.retention import HEARD_ROW_BYTES, remove_old_counter_series
from spool.postgres.migrations import migrate_schema
from spool.postgres.partial_reports import PostgresStoredSenders
from tests.rounds import reduced
from tests.spool.contract.examples import add, call
from tests.spool.postgres.logs import LogOpener, clock, open_log

__all__ = ["clock", "open_log"]

# number of all rows, and the maximum that one statement may delete, which is more than a block has
ROWS, MOST = reduced(20_000, by=4), 400
FILL_HEARD = """
    INSERT INTO {schema}.heard (shard, reporter, at)
    SELECT 0, decode(md5(n::text), 'hex'), n FROM generate_series(1, %s) AS n ORDER BY md5(n::text)"""
FILL_SERIES = """
    INSERT INTO {schema}.series (shard, id, start_time, time, value, seen_at)
    SELECT 0, decode(md5(n::text), 'hex'), 0, 0, '1', n FROM generate_series(1, %s) AS n ORDER BY md5(n::text)"""
LEFT = "SELECT count(*), coalesce(min({column}), 0) FROM {{schema}}.{table}"
REFUSE = """
    CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF (SELECT count(*) FROM gone) > %s THEN RAISE EXCEPTION 'one statement deleted too many rows'; END IF;
      RETURN NULL;
    END $$"""
TRIGGER = """
    CREATE TRIGGER steps AFTER DELETE ON {schema}.%s REFERENCING OLD TABLE AS gone
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse()"""


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_reports, "STEP_BLOCKS", 1)


async def filled(database: Database, table: str, fill: str) -> None:
    """Fill the table with rows from the times 1, 2, ... and refuse statements that delete too many."""
    await migrate_schema(database)

    def work(connection: Connection) -> None:
        connection.execute(database.fill_in_table_names(fill), (ROWS,))
        connection.execute(database.fill_in_table_names(REFUSE % MOST))
        connection.execute(database.fill_in_table_names(TRIGGER % table))

    await database.transaction(work)


async def left(database: Database, table: str, column: str) -> tuple[int, float]:
    text = database.fill_in_table_names(LEFT.format(table=table, column=column))
    row = await database.read(lambda connection: connection.execute(text).fetchone())
    assert row is not None
    return row[0], row[1]


async def test_reporters_are_forgotten_in_steps(database: Database) -> None:
    """Old rows of senders are deleted in steps: all rows before a time, and no others."""
    await filled(database, "heard", FILL_HEARD)
    heard = PostgresStoredSenders(database)
    assert ROWS - 101 == await heard.delete_old(ROWS - 100.0)
    assert (101, ROWS - 100.0) == await left(database, "heard", "at")
    assert 0 == await heard.delete_old(ROWS - 100.0)


async def test_a_reporter_that_is_heard_meanwhile_is_not_waited_for(database: Database) -> None:
    """
    If a commit locks one old row, because its sender reports at that moment, all other old rows are deleted without
    waiting for it.
    """
    await filled(database, "heard", FILL_HEARD)
    begun, over = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    note = database.fill_in_table_names("UPDATE {schema}.heard SET at = %s WHERE at = 7")

    def commit(connection: Connection) -> None:
        connection.execute(note, (2.0 * ROWS,))
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(over.wait(), loop).result()

    committing = asyncio.create_task(database.append.transaction(commit))
    await begun.wait()
    assert ROWS - 1 == await PostgresStoredSenders(database).delete_old(2.0 * ROWS)
    over.set()
    await committing
    assert (1, 2.0 * ROWS) == await left(database, "heard", "at")


async def test_what_is_forgotten_stays_so_when_the_rest_fails(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old rows that were deleted before a failure stay deleted, so the next run starts with fewer rows."""
    await filled(database, "heard", FILL_HEARD)
    transaction, steps = database.transaction, 0

    async def fails_later(work: Callable[[Connection], int]) -> int:
        nonlocal steps
        steps += 1
        if steps > 20:
            raise SpoolError("the database is away")
        return await transaction(work)

    monkeypatch.setattr(database, "transaction", fails_later)
    with pytest.raises(SpoolError):
        await PostgresStoredSenders(database).delete_old(2.0 * ROWS)
    count, _ = await left(database, "heard", "at")
    assert 0 < count < ROWS


async def test_old_series_are_removed_in_steps(database: Database) -> None:
    """A series is deleted a month after its last point."""
    await filled(database, "series", FILL_SERIES)
    await remove_old_counter_series(database, now=SERIES_AGE_S + ROWS - 100.0, max_series=ROWS)
    assert (101, ROWS - 100.0) == await left(database, "series", "seen_at")


async def test_the_oldest_series_beyond_the_bound_are_removed_in_steps(database: Database) -> None:
    """Only the oldest series beyond the limit are deleted. Below the limit no series is deleted."""
    await filled(database, "series", FILL_SERIES)
    assert (100, ROWS - 100) == await remove_old_counter_series(database, now=0.0, max_series=100)
    assert (100, 0) == await remove_old_counter_series(database, now=0.0, max_series=100)
    assert (100, ROWS - 99.0) == await left(database, "series", "seen_at")


async def test_reporters_count_within_max_bytes(open_log: LogOpener) -> None:
    """Senders' rows count once the server has updated its statistics. Deleting them frees space."""
    log = await open_log(max_bytes=1 << 24)
    await add(log, call(1))
    before = (await log.stats()).bytes
    text = log._database.fill_in_table_names(FILL_HEARD)
    await log._database.run(lambda connection: connection.execute(text, (ROWS,)))
    # Wait, because the server updates its statistics a moment later.
    while (await log.stats()).bytes < before + ROWS * HEARD_ROW_BYTES:
        pass
    await PostgresStoredSenders(log._database).delete_old(2.0 * ROWS)
    while (await log.stats()).bytes > before:
        pass
