"""A commit is successful when the standby has confirmed it, and survives the loss of the primary."""

from __future__ import annotations

import asyncio

import pytest

from spool.errors import SpoolUnavailable
from spool.postgres.database import CommitUnknown, Connection, Database, PipelinedTransaction, Unconfirmed
from tests.spool.postgres_cluster import STANDBY, Pair

TIMEOUT_S = 0.3
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


def insert(connection: Connection, n: int) -> None:
    connection.execute("INSERT INTO kept VALUES (%s)", (n,))


def insert_joined(transaction: PipelinedTransaction, n: int) -> None:
    with transaction.begin_in_pipeline():
        transaction.connection.execute("SELECT 1")
    with transaction.commit_in_pipeline():
        insert(transaction.connection, n)


def insert_in_two_steps(transaction: PipelinedTransaction, n: int) -> None:
    with transaction.begin_in_pipeline(needs_standby=True):
        transaction.connection.execute("SELECT 1")
    with transaction.commit_in_pipeline(releases_locks_early=True, needs_standby=True):
        insert(transaction.connection, n)


async def kept(database: Database) -> list[int]:
    return await database.read(
        lambda connection: [n for (n,) in connection.execute("SELECT n FROM kept ORDER BY n")]
    )


async def was_kept(database: Database, n: int) -> bool:
    try:
        await database.transaction(lambda connection: insert(connection, n))
    except SpoolUnavailable:
        await asyncio.sleep(0.05)  # pause between two attempts to connect
        return False
    return True


async def test_what_the_standby_did_not_confirm_is_no_success(pair: Pair) -> None:
    """
    COMMIT succeeds with a warning if its wait for the standby is cancelled. Tollhouse treats this as an error.

    The same applies to a single statement, and to a session that is ended. Then the primary is lost: every
    method fails at once, and continues on the standby after its promotion.
    """
    pair.primary.execute("CREATE TABLE kept (n int PRIMARY KEY)")
    database, patient = (
        Database(pair.dsn, commit_timeout_s=TIMEOUT_S),
        Database(pair.dsn, commit_timeout_s=60.0),
    )
    await patient.transaction(lambda connection: insert(connection, 1))
    pair.standby.stop()
    with pytest.raises(Unconfirmed):
        await database.transaction(lambda connection: insert(connection, 2))
    with pytest.raises(Unconfirmed):
        await database.run(lambda connection: insert(connection, 3))
    with pytest.raises(Unconfirmed):
        await database.append.run_pipelined(lambda transaction: insert_joined(transaction, 30))
    assert await kept(database) == [1, 2, 3, 30]  # these rows are visible, but would be lost with the primary

    for joined in (False, True):
        if joined:
            waiting = asyncio.create_task(
                patient.append.run_pipelined(lambda transaction: insert_joined(transaction, 40))
            )
        else:
            waiting = asyncio.create_task(patient.transaction(lambda connection: insert(connection, 4)))
        while not await asyncio.to_thread(pair.primary.execute, WAITING):
            pass
        while not waiting.done():
            pair.primary.execute(WAITING.replace("pid", "pg_terminate_backend(pid)", 1))
            await asyncio.sleep(0.02)
        with pytest.raises(CommitUnknown):
            await waiting

    waiting = asyncio.create_task(
        patient.append.run_pipelined(lambda transaction: insert_in_two_steps(transaction, 50))
    )
    while not await asyncio.to_thread(pair.primary.execute, WAITING):
        pass
    await asyncio.to_thread(pair.primary.change, synchronous_standby_names="")
    with pytest.raises(Unconfirmed, match="the standby is gone"):
        await waiting
    await asyncio.to_thread(pair.primary.change, synchronous_standby_names=STANDBY)

    pair.standby.start()
    await patient.transaction(lambda connection: insert(connection, 5))
    pair.primary.stop()
    with pytest.raises(SpoolUnavailable):
        await patient.transaction(lambda connection: insert(connection, 6))
    pair.promote()
    while not await was_kept(patient, 6):
        pass
    assert await kept(patient) == [
        1,
        2,
        3,
        4,
        5,
        6,
        30,
        40,
        50,
    ]  # before the standby confirmed 5, it had received all earlier rows
    for one in (database, patient):
        await one.close()
