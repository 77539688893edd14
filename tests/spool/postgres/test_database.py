"""Connections to PostgreSQL: the effects of transactions, and the errors that callers see."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import psycopg
import pytest

from spool import leases
from spool.errors import Invalid, SpoolFull, SpoolUnavailable
from spool.postgres import database as postgres_database
from spool.postgres.connections import lane
from spool.postgres.connections.session import ServerSession
from spool.postgres.database import CommitUnknown, Connection, Database, PipelinedTransaction, UniqueViolation
from tests.free_ports import free_port
from tests.moved_clock import MovedClock
from tests.spool.postgres_cluster import BEHIND_POOLER, Schema, Server


@pytest.fixture
def table(unmade_schema: Schema) -> str:
    with psycopg.connect(unmade_schema.dsn, autocommit=True) as connection:
        connection.execute(
            f"CREATE SCHEMA {unmade_schema.name}; CREATE TABLE {unmade_schema.name}.kept (n int PRIMARY KEY)"
        )
    return f"{unmade_schema.name}.kept"


def inserted(database: Database, n: int, connection: Connection) -> None:
    connection.execute(database.fill_in_table_names("INSERT INTO {schema}.kept (n) VALUES (%s)"), (n,))


async def kept(database: Database) -> list[int]:
    text = database.fill_in_table_names("SELECT n FROM {schema}.kept ORDER BY n")
    return await database.read(lambda connection: [n for (n,) in connection.execute(text)])


async def test_an_error_leaves_everything_as_it_was(database: Database, table: str) -> None:
    """A failed transaction leaves nothing, and its connection serves the next one."""

    def work(connection: Connection) -> None:
        inserted(database, 1, connection)
        inserted(database, 1, connection)

    with pytest.raises(UniqueViolation):
        await database.transaction(work)
    await database.transaction(lambda connection: inserted(database, 2, connection))
    assert await kept(database) == [2]


async def test_an_error_that_nobody_waits_for_is_no_defect() -> None:
    """If a query fails whose caller was cancelled meanwhile, asyncio must not report an unretrieved error."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: complaints.append(context["message"])
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        database = Database(f"host=127.0.0.1 port={port} sslmode=disable gssencmode=disable")
        asking = asyncio.create_task(database.read(lambda connection: None))
        connection, _ = await asyncio.to_thread(silent.accept)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    connection.close()
    await database.close()
    await asyncio.sleep(0)
    del asking  # the task's traceback refers to the query
    gc.collect()
    assert [] == complaints


async def test_a_connection_whose_statements_are_in_doubt_is_left(database: Database, table: str) -> None:
    """
    After an error the server skips the rest of a pipeline, including the preparation of statements. psycopg
    may believe them prepared, so every later use of the connection would fail.
    """

    def pipeline(connection: Connection) -> None:
        with connection.pipeline():
            connection.execute("SELECT 1 / 0")
            connection.execute("SELECT 1")

    def unknown(connection: Connection) -> None:
        connection.execute("EXECUTE of_nobody")

    pids = set()
    for fail in (pipeline, unknown):
        pids.add(await database.append.read(lambda connection: connection.info.backend_pid))
        with pytest.raises((Invalid, SpoolUnavailable)):
            await database.append.transaction(fail)
    pids.add(await database.append.read(lambda connection: connection.info.backend_pid))
    # Behind a pooler no statement is prepared, so the connection is reused after the pipeline's error.
    assert (2 if BEHIND_POOLER else 3) == len(pids)


async def test_an_error_that_the_work_hides_commits_nothing(database: Database, table: str) -> None:
    """
    PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK and no error. Tollhouse raises an error.
    """

    def work(connection: Connection) -> None:
        inserted(database, 1, connection)
        with pytest.raises(UniqueViolation):
            inserted(database, 1, connection)

    with pytest.raises(SpoolUnavailable):
        await database.transaction(work)
    assert await kept(database) == []


async def test_a_snapshot_is_of_one_moment(database: Database, table: str, cluster: Server) -> None:
    """A snapshot does not see commits of others. The next statement of a plain read does."""
    text = database.fill_in_table_names("SELECT count(*) FROM {schema}.kept")

    def counts(connection: Connection, n: int) -> list[object]:
        before = connection.execute(text).fetchone()
        with psycopg.connect(cluster.dsn, autocommit=True) as other:
            inserted(database, n, other)
        return [before, connection.execute(text).fetchone()]

    assert await database.snapshot(lambda connection: counts(connection, 1)) == [(0,), (0,)]
    assert await database.read(lambda connection: counts(connection, 2)) == [(1,), (2,)]


END_ALL = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE 'tollhouse %'"""


async def test_a_connection_that_ended_is_made_again(database: Database, table: str, cluster: Server) -> None:
    """
    A connection whose session has ended is not used. If a session ends before the commit, the work is
    repeated on another connection.
    """
    await asyncio.gather(
        *(database.read(lambda connection: connection.execute("SELECT 1")) for _ in range(4))
    )
    with psycopg.connect(cluster.dsn, autocommit=True) as other:
        other.execute(END_ALL)
    await database.transaction(lambda connection: inserted(database, 1, connection))
    ended: list[int] = []

    def work(connection: Connection) -> Sequence[object]:
        if not ended:
            ended.append(connection.info.backend_pid)
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return connection.execute(database.fill_in_table_names("SELECT n FROM {schema}.kept")).fetchall()

    for verb in (database.read, database.transaction):
        assert await verb(work) == [(1,)]
        ended.clear()
    with pytest.raises(SpoolUnavailable):
        await database.run(work)


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_process_that_stopped_between_two_statements_begins_again(
    cluster: Server, pooler: str, table: str, unmade_schema: Schema, pooled: bool
) -> None:
    """
    The server ends the session of a stopped process, so that it blocks nobody. This was before the commit, so
    the work is repeated.
    """
    database = (unmade_schema.behind(pooler) if pooled else unmade_schema).database()
    tries: list[int] = []

    def work(connection: Connection) -> None:
        inserted(database, len(tries), connection)
        [[pid]] = connection.execute("SELECT pg_backend_pid()").fetchall()
        tries.append(pid)
        if len(tries) == 1:
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = '10ms'")
            while cluster.execute(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"):
                time.sleep(0.02)
        connection.execute("SELECT 1")

    await database.transaction(work)
    assert [1] == await kept(database)
    assert 2 == len(set(tries))
    await database.close()


async def test_a_process_that_stopped_before_its_commit_holds_nobody_up(
    database: Database, table: str, cluster: Server
) -> None:
    """
    If a process stops, the server ends its session also if its commit takes two round trips. Nothing is stored, and
    the work is repeated or looked up.
    """
    tries: list[int] = []

    def work(transaction: PipelinedTransaction) -> None:
        with transaction.begin_in_pipeline():
            asked = transaction.connection.execute("SELECT pg_backend_pid()")
            if not tries:
                transaction.connection.execute("SET LOCAL idle_in_transaction_session_timeout = '10ms'")
        [[pid]] = asked.fetchall()
        tries.append(pid)
        while len(tries) == 1 and cluster.execute(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"):
            time.sleep(0.02)
        with transaction.commit_in_pipeline():
            inserted(database, len(tries), transaction.connection)

    try:
        await database.append.run_pipelined(work)
    except CommitUnknown:  # the server's answer was lost with the connection
        assert [] == await kept(database)
    else:
        assert await kept(database) == [2]
        assert len(set(tries)) == 2


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Stop a server process, while the system still acknowledges its network packets."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_work_on_a_stalled_server_continues_on_another_connection(
    table: str, unmade_schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the server stands still, work before its commit continues on another connection. For a commit, the result is
    unknown. A migration waits without a limit.
    """
    for module, name in ((lane, "CANCEL_S"), (lane, "LOOK_S"), (postgres_database, "STATEMENT_S")):
        monkeypatch.setattr(module, name, 0.5)
    database = Database(unmade_schema.dsn, schema=unmade_schema.name, commit_timeout_s=0.5)
    asked: list[int] = []

    with ExitStack() as stack:

        def stand_still(connection: Connection) -> None:
            stack.enter_context(standing_still(connection.info.backend_pid))

        def ask(connection: Connection) -> int:
            asked.append(connection.info.backend_pid)
            if len(asked) == 1:
                stand_still(connection)
            return int(connection.execute("SELECT pg_backend_pid()").fetchall()[0][0])

        def keep(connection: Connection) -> None:
            inserted(database, 1, connection)
            stand_still(connection)

        def keep_two(connection: Connection) -> None:
            inserted(database, 2, connection)
            stand_still(connection)
            inserted(database, 3, connection)

        answer, committed, ran, slept = await asyncio.gather(
            database.read(ask),
            database.append.transaction(keep),
            database.control.run(keep_two),
            database.transaction(lambda one: one.execute("SELECT pg_sleep(1.5)").rowcount, takes_long=True),
            return_exceptions=True,
        )
        assert answer == asked[-1] != asked[0]
        assert CommitUnknown is type(committed)
        assert SpoolUnavailable is type(ran)
        assert slept == 1
        await database.append.transaction(lambda connection: inserted(database, 4, connection))
        assert {2, 4} <= set(await kept(database))
    await database.close()


async def test_a_server_that_answers_is_waited_for_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    After a silent connection, other connections wait a shorter time, but only until one of them gets an answer.
    """
    monkeypatch.setattr(lane, "LOOK_S", 0.1)
    monkeypatch.setattr(database.pool, "_target", replace(database._target, commit_timeout_s=0.1))
    monkeypatch.setattr(database.pool, "_silent_s", 0.2)
    database._reachability.note_server_silence()
    await database.control.read(lambda connection: connection.execute("SELECT 1"))
    await database.read(lambda connection: connection.execute("SELECT pg_sleep(1)"))


async def test_an_old_primary_is_passed_over(cluster: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the newly promoted primary was seen, connections to the old one are closed, even idle ones."""
    dsn = f"host=127.0.0.1,localhost port={cluster.port} user=tollhouse dbname=postgres sslmode=disable"
    database, alone = Database(dsn), Database(cluster.dsn)

    async def asked(one: Database) -> tuple[str, int | None]:
        host = await one.read(lambda connection: connection.info.host)
        return host, one.pool._idle[-1].timeline

    assert ("127.0.0.1", 1) == await asked(database) == await asked(alone)
    read = ServerSession.read_and_keep_timeline

    def read_timeline(session: ServerSession) -> None:
        read(session)
        if session.connection.info.host == "localhost":
            session.timeline = 2

    monkeypatch.setattr(ServerSession, "read_and_keep_timeline", read_timeline)
    for one in (database, alone):
        assert not one._reachability.note_and_compare_timeline(2)
    assert ("localhost", 2) == await asked(database)
    begins = Database(dsn)
    assert ("localhost", 2) == await asked(
        begins
    )  # a process that starts now also connects to the new primary
    await begins.close()
    with pytest.raises(SpoolUnavailable, match="an old primary responded"):
        await asked(alone)
    for one in (database, alone):
        await one.close()


async def test_errors_are_those_of_the_spool(database: Database, table: str, unmade_schema: Schema) -> None:
    """The errors for an unavailable lock, a cancelled statement and an invalid value state who has to act."""

    def lock(connection: Connection) -> None:
        connection.execute("SET LOCAL lock_timeout = '10ms'")
        connection.execute(database.fill_in_table_names("LOCK TABLE {schema}.kept"))

    with psycopg.connect(unmade_schema.dsn) as holder:
        holder.execute(f"LOCK TABLE {table}")
        with pytest.raises(SpoolUnavailable, match="lock timeout"):
            await database.transaction(lock)
    with pytest.raises(SpoolUnavailable, match="statement timeout"):
        await database.transaction(
            lambda connection: connection.execute("SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(10)")
        )
    with pytest.raises(Invalid):
        await database.run(lambda connection: connection.execute("SELECT %s::int", ("a",)))


async def test_no_server_is_unavailable() -> None:
    """Without a server every method raises SpoolUnavailable. During the pause no new attempt is made."""
    database = Database(f"host=127.0.0.1 port={free_port()} user=tollhouse dbname=postgres")
    for verb in (database.run, database.transaction, database.read, database.snapshot):
        with pytest.raises(SpoolUnavailable, match="cannot be reached"):
            await verb(lambda connection: None)
    await database.close()


async def test_time_is_the_databases_unless_a_test_moves_it(unmade_schema: Schema) -> None:
    """{now} in an SQL text is the time of the database, or of a clock that a test moves."""
    moved = unmade_schema.database(clock=MovedClock(7.0))
    real = unmade_schema.database()
    assert await told_time(moved) == 7.0
    before = await told_time(real)
    assert 7.0 < before < await told_time(real)
    for database in (moved, real):
        await database.close()


async def told_time(database: Database) -> float:
    text, parameters = (
        database.fill_in_table_names("SELECT {now}"),
        {"now": database.now_unless_database_clock()},
    )
    row = await database.read(lambda connection: connection.execute(text, parameters).fetchone())
    assert row is not None
    return float(row[0])


async def test_a_disk_that_is_full_passes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    With a full disk, a sender is told when to repeat. A task that only one gateway runs waits,
    and no gateway stops.
    """
    monkeypatch.setattr(leases, "AGAIN_S", 0.0)
    full = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file'; END $$"
    statements = [full, "SELECT 1"]
    with pytest.raises(SpoolFull):
        await database.run(lambda connection: connection.execute(full.encode()))
    held = leases.LeaseTasks()
    held.gain_lease("retention")

    async def work() -> None:
        await database.run(lambda connection: connection.execute(statements.pop(0).encode()))

    await held.run_while_leased("retention", work)
    assert [] == statements


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_commit_waits_whatever_the_role_says(
    unmade_schema: Schema, cluster: Server, pooled: bool
) -> None:
    """
    A role may be configured to commit without waiting for standby and disk. Tollhouse overrides this, because
    acknowledged records could be lost.
    """
    role = f"careless_{unmade_schema.name}"
    for statement in (
        f"CREATE ROLE {role} LOGIN", f"ALTER ROLE {role} SET synchronous_commit = off",
        f"ALTER ROLE {role} SET default_transaction_isolation = 'serializable'",
    ):  # fmt: skip
        cluster.execute(statement)
    careless = Database(f"{unmade_schema.dsn} user={role}", schema=unmade_schema.name, pooled=pooled)

    def settings(connection: Connection) -> list[object]:
        names = ("synchronous_commit", "transaction_isolation")
        return [connection.execute(f"SHOW {name}".encode()).fetchall() for name in names]

    try:
        expected = [[("on",)], [("read committed",)]]
        assert expected == await careless.transaction(settings)
        assert expected == await careless.run(settings)
        assert expected == await careless.read(settings)
    finally:
        await careless.close()
        cluster.execute(f"DROP ROLE {role}")


async def test_connection_works_above_the_descriptor_limit_of_select(database: Database, table: str) -> None:
    """With many connected senders, the descriptor of a connection is above the limit of `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this process may not open so many files")
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1024):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        await database.transaction(lambda connection: inserted(database, 1, connection))
        await database.transaction(lambda connection: inserted(database, 2, connection))
        assert await kept(database) == [1, 2]
