"""
Behind pgbouncer a connection is reserved for one transaction only, so nothing may be left on it or
expected of it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import psycopg
import pytest

from spool.errors import Invalid, SpoolUnavailable
from spool.postgres.connections.target import LIMITS, PROMISES
from spool.postgres.database import Connection, Database, Unconfirmed
from spool.postgres.migrations import VERSION, migrate_schema, read_schema_version
from tests.spool.postgres_cluster import Schema, Server


async def test_all_methods_work_behind_a_pooler(pooler: str, unmade_schema: Schema) -> None:
    """
    All methods work behind a pooler: migrations, pipelines and transactions share two connections. The limits hold
    within each transaction.
    """
    database = Database(pooler, schema=unmade_schema.name, pooled=True)
    await migrate_schema(database)
    assert await read_schema_version(database) == VERSION

    def add(connection: Connection, place: int) -> list[tuple[str]]:
        keep = database.fill_in_table_names("INSERT INTO {schema}.facts (name, value) VALUES (%s, %s)")
        with connection.pipeline():
            for n in range(3):
                connection.execute(keep, (f"{place}/{n}", b""))
        return connection.execute("SHOW lock_timeout").fetchall()

    places = range(4)
    limits = await asyncio.gather(*(database.transaction(partial(add, place=place)) for place in places))
    assert limits == [[(LIMITS["lock_timeout"],)]] * 4
    count = database.fill_in_table_names("SELECT count(*) FROM {schema}.facts WHERE value = ''")
    for _ in range(8):  # more executions than psycopg needs to prepare a statement
        assert await database.read(lambda connection: connection.execute(count).fetchall()) == [(12,)]
    with pytest.raises(SpoolUnavailable, match="statement timeout"):
        await database.transaction(
            lambda connection: connection.execute("SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(10)")
        )
    await database.close()


async def test_single_statement_needs_one_round_trip(
    pooler: str, unmade_schema: Schema, tmp_path: Path
) -> None:
    """
    A single statement is sent together with its settings. After an error the connection serves the next statement.
    """
    pooled = unmade_schema.behind(pooler).database()
    trace = tmp_path / "trace"

    def work(connection: Connection) -> list[tuple[object, ...]]:
        with trace.open("w") as file:
            connection.pgconn.trace(file.fileno())
            rows = connection.execute("SELECT %s::text, current_setting('lock_timeout')", ("a",)).fetchall()
            connection.pgconn.untrace()
        return rows

    assert [("a", LIMITS["lock_timeout"])] == await pooled.run(work)
    # The second column is the sender of a message: F for Tollhouse, B for the server.
    senders = [line.split("\t")[1] for line in trace.read_text().splitlines()]
    assert ["F", "B"] == [sender for sender, _ in itertools.groupby(senders)]
    with pytest.raises(Invalid):
        await pooled.run(lambda connection: connection.execute("SELECT %s::int", ("a",)))
    with pytest.raises(ZeroDivisionError):
        await pooled.run(_interrupted)
    assert [("a", LIMITS["lock_timeout"])] == await pooled.run(work)
    await pooled.close()


def _interrupted(connection: Connection) -> None:
    with connection.pipeline():
        connection.execute("SELECT 1")
        raise ZeroDivisionError


def _alone(statement: bytes, connection: Connection) -> None:
    connection.execute(statement)


def _in_pipeline(statement: bytes, connection: Connection) -> None:
    with connection.pipeline():
        connection.execute(statement)
        connection.execute("SELECT 1")


Form = Callable[[Database, bytes], Awaitable[None]]
FORMS: Sequence[Form] = (
    lambda database, statement: database.run(partial(_alone, statement)),
    lambda database, statement: database.run(partial(_in_pipeline, statement)),
    lambda database, statement: database.transaction(partial(_alone, statement)),
    lambda database, statement: database.append.transaction(partial(_in_pipeline, statement)),
    lambda database, statement: database.control.run(partial(_alone, statement)),
)


@pytest.mark.parametrize("pooled", [False, True])
async def test_whatever_is_written_waits_for_the_standby(
    cluster: Server, pooler: str, unmade_schema: Schema, pooled: bool
) -> None:
    """
    Each write waits for the standby, although the server's own settings wait for none and end nothing. A guard
    checks that each method sends its own settings.
    """
    dsn = pooler if pooled else cluster.dsn
    database = Database(dsn, schema=unmade_schema.name, pooled=pooled, commit_timeout_s=0.2)
    name = unmade_schema.name
    cluster.execute(
        f"CREATE SCHEMA {name}; CREATE TABLE {name}.kept (n int); INSERT INTO {name}.kept VALUES (0)"
    )
    add = database.fill_in_table_names("INSERT INTO {schema}.kept VALUES (1)")
    cluster.change(synchronous_standby_names="nobody")
    try:
        with pytest.raises(Unconfirmed):
            while True:  # wait, because the server applies the setting some time later
                await database.run(partial(_alone, add))
        for form in FORMS:
            with pytest.raises(Unconfirmed):
                await form(database, add)
        # A session without the settings of Tollhouse's methods commits at once, without a standby.
        cluster.execute(f"INSERT INTO {name}.kept VALUES (2)")
    finally:
        cluster.change(synchronous_standby_names="")
        await database.close()


@pytest.mark.parametrize("pooled", [False, True])
async def test_whatever_waits_ends(
    cluster: Server, pooler: str, unmade_schema: Schema, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait ends: a locked row and an endless statement occupy a connection no longer than the limits."""
    name = unmade_schema.name
    cluster.execute(
        f"CREATE SCHEMA {name}; CREATE TABLE {name}.kept (n int); INSERT INTO {name}.kept VALUES (0)"
    )
    for limit, statement, error in (
        ("lock_timeout", f"UPDATE {name}.kept SET n = 1", "lock timeout"),
        ("statement_timeout", "SELECT pg_sleep(600)", "statement timeout"),
    ):
        with monkeypatch.context() as patched, psycopg.connect(cluster.dsn) as holder:
            patched.setitem(LIMITS, limit, "50ms")
            database = Database(pooler if pooled else cluster.dsn, schema=name, pooled=pooled)
            holder.execute(f"UPDATE {name}.kept SET n = 2".encode())
            for form in FORMS:
                with pytest.raises(SpoolUnavailable, match=error):
                    await form(database, statement.encode())
            await database.close()


async def test_a_verb_without_its_settings_is_found(cluster: Server, fresh_schema: Schema) -> None:
    """The guard on the test server checks every method of the suite, direct and behind the pooler."""
    database = fresh_schema.database()
    await migrate_schema(database)
    await database.close()
    add = f"INSERT INTO {fresh_schema.name}.leases (name) VALUES ('a')".encode()
    with psycopg.connect(cluster.dsn, autocommit=True, application_name="tollhouse verbs") as forgetful:
        with pytest.raises(psycopg.errors.RaiseException, match="without the settings"):
            forgetful.execute(add)
        for name, value in {**PROMISES, **LIMITS}.items():
            forgetful.execute(f"SET {name} = '{value}'".encode())
        forgetful.execute(add)


async def test_a_pooler_that_nobody_spoke_of_is_named(pooler: str) -> None:
    """A pooler refuses settings for a whole connection. The error names the missing Tollhouse setting."""
    database = Database(pooler)
    with pytest.raises(SpoolUnavailable, match=r'storage\.pooler = "transaction"'):
        await database.read(lambda connection: connection.execute("SELECT 1"))
    await database.close()
