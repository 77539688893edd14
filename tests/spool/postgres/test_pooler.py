"""Behind pgbouncer a connection is ours for one transaction: nothing is left on it, and nothing is expected of it."""

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
from spool.postgres.migrations import VERSION, found_version, migrate
from tests.spool.postgres_cluster import Schema, Server


async def test_verbs_work_behind_a_pooler(pooler: str, unmade_schema: Schema) -> None:
    """Migrations, pipelines and transactions share two connections; the limits hold within each transaction."""
    database = Database(pooler, schema=unmade_schema.name, pooled=True)
    await migrate(database)
    assert await found_version(database) == VERSION

    def add(connection: Connection, place: int) -> list[tuple[str]]:
        keep = database.sql("INSERT INTO {schema}.facts (name, value) VALUES (%s, %s)")
        with connection.pipeline():
            for n in range(3):
                connection.execute(keep, (f"{place}/{n}", b""))
        return connection.execute("SHOW lock_timeout").fetchall()

    places = range(4)
    limits = await asyncio.gather(*(database.transaction(partial(add, place=place)) for place in places))
    assert limits == [[(LIMITS["lock_timeout"],)]] * 4
    count = database.sql("SELECT count(*) FROM {schema}.facts WHERE value = ''")
    for _ in range(8):  # more often than a statement is prepared where that is possible
        assert await database.read(lambda connection: connection.execute(count).fetchall()) == [(12,)]
    with pytest.raises(SpoolUnavailable, match="statement timeout"):
        await database.transaction(
            lambda connection: connection.execute("SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(10)")
        )
    await database.close()


async def test_a_statement_of_its_own_takes_one_round_trip(
    pooler: str, unmade_schema: Schema, tmp_path: Path
) -> None:
    """What it needs is sent with it; an error leaves a connection that serves the next one."""
    pooled = unmade_schema.behind(pooler).database()
    trace = tmp_path / "trace"

    def work(connection: Connection) -> list[tuple[object, ...]]:
        with trace.open("w") as file:
            connection.pgconn.trace(file.fileno())
            rows = connection.execute("SELECT %s::text, current_setting('lock_timeout')", ("a",)).fetchall()
            connection.pgconn.untrace()
        return rows

    assert [("a", LIMITS["lock_timeout"])] == await pooled.run(work)
    senders = [
        line.split("\t")[1] for line in trace.read_text().splitlines()
    ]  # F: of Tollhouse, B: of the server
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
    The server is set to wait for no standby, and to end nothing; that each verb has its own settings is guarded.
    """
    dsn = pooler if pooled else cluster.dsn
    database = Database(dsn, schema=unmade_schema.name, pooled=pooled, commit_timeout_s=0.2)
    name = unmade_schema.name
    cluster.execute(
        f"CREATE SCHEMA {name}; CREATE TABLE {name}.kept (n int); INSERT INTO {name}.kept VALUES (0)"
    )
    add = database.sql("INSERT INTO {schema}.kept VALUES (1)")
    cluster.change(synchronous_standby_names="nobody")
    try:
        with pytest.raises(Unconfirmed):
            while True:  # the server takes it over at a moment of its own
                await database.run(partial(_alone, add))
        for form in FORMS:
            with pytest.raises(Unconfirmed):
                await form(database, add)
        cluster.execute(f"INSERT INTO {name}.kept VALUES (2)")  # this is what the server does by itself
    finally:
        cluster.change(synchronous_standby_names="")
        await database.close()


@pytest.mark.parametrize("pooled", [False, True])
async def test_whatever_waits_ends(
    cluster: Server, pooler: str, unmade_schema: Schema, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that somebody else has, and a statement without an end, cost no connection for longer than the limits."""
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
    """The guard of the tests' server is what holds every verb of the suite to it, direct and behind the pooler."""
    database = fresh_schema.database()
    await migrate(database)
    await database.close()
    add = f"INSERT INTO {fresh_schema.name}.leases (name) VALUES ('a')".encode()
    with psycopg.connect(cluster.dsn, autocommit=True, application_name="tollhouse verbs") as forgetful:
        with pytest.raises(psycopg.errors.RaiseException, match="without the settings"):
            forgetful.execute(add)
        for name, value in {**PROMISES, **LIMITS}.items():
            forgetful.execute(f"SET {name} = '{value}'".encode())
        forgetful.execute(add)


async def test_a_pooler_that_nobody_spoke_of_is_named(pooler: str) -> None:
    """It refuses what is set for a whole connection; the error says which setting is missing."""
    database = Database(pooler)
    with pytest.raises(SpoolUnavailable, match=r'storage\.pooler = "transaction"'):
        await database.read(lambda connection: connection.execute("SELECT 1"))
    await database.close()
