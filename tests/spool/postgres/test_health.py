"""The state of the database: standbys, waiting sessions, old transactions, and gateways."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from spool.clock import SystemClock
from spool.errors import SpoolUnavailable
from spool.postgres.database import Connection, Database
from spool.postgres.health import read_health
from spool.postgres.leases import PostgresLeases
from spool.postgres.migrations import migrate_schema
from spool.settings import LOCAL, REPLICATED
from spool.storage import DatabaseHealth
from tests.spool.postgres_cluster import STANDBY, Schema, Server, environment, programs


async def reaches(database: Database, state: Callable[[DatabaseHealth], bool]) -> DatabaseHealth:
    """Return the figures once they match. Only the test's time limit ends the wait."""
    while not state(found := await read_health(database, REPLICATED)):
        pass
    return found


@contextmanager
def receiver(cluster: Server, place: Path) -> Iterator[None]:
    """Run a receiver that stores and confirms the write-ahead log, as a standby does."""
    folder = programs()
    assert folder is not None
    dsn = f"{cluster.dsn.replace('dbname=postgres ', '')} application_name={STANDBY}"
    command = [str(folder / "pg_receivewal"), "-D", str(place), "-d", dsn, "--synchronous", "--no-loop"]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def commit_until(ended: asyncio.Event, database: Database) -> None:
    """Commit until a commit waits, because the server applies changed settings some time later."""
    insert = database.fill_in_table_names("INSERT INTO {schema}.held VALUES (1)")
    while not ended.is_set():
        await database.transaction(lambda one: one.execute(insert), takes_long=True)


async def test_a_standby_is_seen_and_so_is_its_absence(
    database: Database, cluster: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that waits for the standby is counted, with its waiting time."""
    monkeypatch.setattr(database.pool, "_target", replace(database._target, commit_timeout_s=300.0))
    await migrate_schema(database)
    await database.run(
        lambda one: one.execute(database.fill_in_table_names("CREATE TABLE {schema}.held (n int)"))
    )
    with receiver(cluster, tmp_path):
        cluster.change(synchronous_standby_names=STANDBY)
        try:
            found = await reaches(
                database, lambda one: any(standby.is_synchronous for standby in one.standbys or ())
            )
            assert [STANDBY] == [one.name for one in found.standbys or ()]
            assert found.needs_standby is True
            assert found.standby_waits == 0
        finally:
            cluster.change(synchronous_standby_names="")
    try:
        await reaches(database, lambda one: one.standbys == [])
        cluster.change(synchronous_standby_names=STANDBY)
        ended = asyncio.Event()
        committing = asyncio.create_task(commit_until(ended, database))
        found = await reaches(database, lambda one: one.standby_wait_s > 0.05)
        assert 1 == found.standby_waits
        ended.set()
    finally:
        cluster.change(synchronous_standby_names="")
    await committing


async def test_who_waits_and_what_is_old_is_seen(database: Database, unmade_schema: Schema) -> None:
    """The figures show a commit that waits for another gateway, and a transaction that was left open."""
    await migrate_schema(database)
    await database.run(
        lambda one: one.execute(database.fill_in_table_names("CREATE TABLE {schema}.held (n int)"))
    )
    lock = database.fill_in_table_names("LOCK TABLE {schema}.held")
    with psycopg.connect(unmade_schema.dsn) as forgotten:
        forgotten.execute(lock)

        def wait(one: Connection) -> None:
            one.execute("SET LOCAL lock_timeout = 0")
            one.execute(lock)

        appending = asyncio.create_task(database.append.transaction(wait, takes_long=True))
        found = await reaches(database, lambda one: bool(one.head_waits and one.head_wait_s > 0.05))
        assert found.head_waits == 1
        assert found.standby_waits == 0
        assert (found.oldest_transaction_s or 0) > found.head_wait_s
        assert 0 < found.connections < found.max_connections
    await appending
    found = await read_health(database, REPLICATED)
    assert found.head_waits == 0
    assert found.head_wait_s == 0.0


async def test_a_role_without_the_right_sees_its_own_alone(database: Database, unmade_schema: Schema) -> None:
    """
    If the role lacks the right to see other sessions, standbys and transactions of others are unknown, not absent.
    """
    await migrate_schema(database)
    role = f"reader_{unmade_schema.name}"
    with psycopg.connect(unmade_schema.dsn, autocommit=True) as owner:
        for statement in (
            f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA {unmade_schema.name} TO {role}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {unmade_schema.name} TO {role}",
        ):  # fmt: skip
            owner.execute(statement.encode())
        try:
            limited = Database(f"{unmade_schema.dsn} user={role}", schema=unmade_schema.name)
            found = await read_health(limited, LOCAL)
            assert found.standbys is None
            assert found.oldest_transaction_s is None
            assert found.needs_standby is False
            owner.execute(f"GRANT pg_monitor TO {role}".encode())
            found = await read_health(limited, LOCAL)
            assert found.standbys == []
            assert found.oldest_transaction_s is not None
            await limited.close()
        finally:
            owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


async def test_gateways_and_their_leases_are_counted(database: Database) -> None:
    """A gateway that wants a lease is live. A lease that no gateway holds yet is free."""
    await migrate_schema(database)
    clock = SystemClock()
    leases = PostgresLeases(database, clock, name="a", version="1")
    running = asyncio.create_task(leases.run_while_leased("retention", asyncio.Event().wait))  # type: ignore[arg-type]
    found = await reaches(database, lambda one: one.leases_held == 1)
    assert found.nodes == 1
    assert found.leases_free == 0
    want = database.fill_in_table_names("UPDATE {schema}.nodes SET wants = '{retention,ledger}'")
    while True:  # repeat the change, because the gateway may overwrite it with its own list
        await database.run(lambda one: one.execute(want))
        found = await read_health(database, REPLICATED)
        if found.leases_free:
            break
    assert found.leases_held == 1
    assert found.leases_free == 1
    running.cancel()
    # wait for the task, because its last heartbeat might otherwise follow the close
    await asyncio.wait([running])
    await leases.close()
    assert 0 == (await read_health(database, REPLICATED)).nodes


async def test_attempts_to_connect_that_failed_are_counted() -> None:
    database = Database("host=127.0.0.1 port=1 dbname=none sslmode=disable")
    assert 0 == database.failed_connection_count
    with pytest.raises(SpoolUnavailable):
        await read_health(database, LOCAL)
    assert 1 == database.failed_connection_count
    await database.close()
