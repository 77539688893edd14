"""
Versions of a schema: each migration runs once, whoever starts it, and nodes that are too old for it
refuse to work.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import psycopg
import pytest

from spool.clock import SystemClock
from spool.engines import open_storage
from spool.errors import BeingMigrated, NotAllowed, OtherSchema
from spool.postgres import administration, migrations
from spool.postgres.address import create_secret_file_if_missing
from spool.postgres.database import SESSION_S, Connection, Database, PostgresConnection
from spool.postgres.leases import PostgresLeases
from spool.postgres.migrations import VERSION, VERSIONS, Migration, migrate_schema, read_schema_version
from spool.postgres.transfer.tables import tables_opener
from spool.settings import POSTGRES, SpoolSettings
from spool.sql import facts
from spool.storage import StorageOptions
from tests.moved_clock import MovedClock
from tests.spool.postgres_cluster import KINDS, Schema, Schemas, Server, first_state
from tests.waiting import awaited


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
async def database(unmade_schema: Schema, clock: MovedClock) -> AsyncIterator[Database]:
    """An open database without a schema, at the time of the test."""
    opened = Database(unmade_schema.dsn, schema=unmade_schema.name, clock=clock)
    yield opened
    await opened.close()


async def test_a_database_with_another_encoding_is_refused(cluster: Server, tmp_path: Path) -> None:
    """Without UTF8, texts arrive as bytes. `storage init` says so, and creates nothing."""
    with psycopg.connect(cluster.dsn, autocommit=True) as connection:
        connection.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        schema = Schema(dsn=cluster.dsn.replace("dbname=postgres", "dbname=plain"), name="test_encoding")
        try:
            with pytest.raises(NotAllowed, match="has the encoding SQL_ASCII, but Tollhouse needs UTF8"):
                await administration.create_storage(schema.settings(tmp_path), SpoolSettings())
            with psycopg.connect(schema.dsn, autocommit=True) as other:
                found = other.execute("SELECT to_regnamespace(%s)", (schema.name,)).fetchone()
            assert (None,) == found
        finally:
            connection.execute("DROP DATABASE plain WITH (FORCE)")


async def test_several_processes_begin_at_once(unmade_schema: Schema) -> None:
    """If several processes start at the same time, the first one creates the schema, and the others find it."""
    databases = [unmade_schema.database() for _ in range(4)]
    assert await read_schema_version(databases[0]) == 0
    await asyncio.gather(*(migrate_schema(database) for database in databases))
    assert [await read_schema_version(database) for database in databases] == [VERSION] * 4
    for database in databases:
        await database.close()


class Heard(logging.Handler):
    """A log handler that sets `once` when a line with this action is logged."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self.once = asyncio.Event()
        self._action = action

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "action", "") == self._action:
            self.once.set()


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE SCHEMA {schema}",),
        ("CREATE SCHEMA {schema}", "COMMIT", migrations.FACTS),
        ("CREATE SCHEMA {schema}", migrations.FACTS, "COMMIT", "LOCK TABLE {schema}.facts IN EXCLUSIVE MODE"),
    ],
    ids=["makes the schema", "makes the first table", "makes the others"],
)
async def test_second_process_waits_as_long_as_the_first_needs(
    unmade_schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: tuple[str, ...]
) -> None:
    """
    A second process waits as long as the first one needs, at any point of it. A command logs the wait, and a server
    is notified so that it can answer health checks meanwhile.
    """
    monkeypatch.setattr(migrations, "LOCK_WAIT_MS", 20)
    heard = Heard("migration_waits")
    logger = logging.getLogger(migrations.__name__)
    logger.addHandler(heard)
    database = Database(unmade_schema.dsn, schema=unmade_schema.name)
    with psycopg.connect(unmade_schema.dsn) as first:
        for text in statements:
            first.execute(database.fill_in_table_names(text))
        second = asyncio.create_task(migrate_schema(database))
        await heard.once.wait()
        options = StorageOptions(
            settings=SpoolSettings(),
            clock=SystemClock(),
            directory=tmp_path / "data",
            storage=unmade_schema.settings(tmp_path),
        )
        with pytest.raises(BeingMigrated, match=unmade_schema.name):
            await open_storage(options, engine=POSTGRES)
        assert not second.done()
    await second
    assert VERSION == await read_schema_version(database)
    logger.removeHandler(heard)
    await database.close()


@pytest.mark.parametrize(
    ("version", "oldest_node", "refused"),
    [(VERSION + 1, VERSION, False), (VERSION + 2, VERSION, True), (VERSION + 1, VERSION + 1, True)],
)
async def test_node_works_with_a_schema_one_version_ahead(
    database: Database, version: int, oldest_node: int, refused: bool
) -> None:
    """
    A node works with a schema one version ahead, unless that schema excludes older nodes. The error
    names both numbers.
    """
    await migrate_schema(database)

    def say(connection: Connection) -> None:
        for name, value in (("version", version), ("oldest_node", oldest_node)):
            facts.store_fact(
                PostgresConnection(connection, database.fill_in_table_names), name, str(value).encode()
            )

    await database.run(say)
    if refused:
        with pytest.raises(OtherSchema, match=rf"version {version} .* version {VERSION}"):
            await migrate_schema(database)
    else:
        await migrate_schema(database)
        assert await read_schema_version(database) == version


async def test_a_schema_of_another_build_is_refused(
    unmade_schema: Schema, database: Database, tmp_path: Path
) -> None:
    """
    A schema of another build is refused before a row changes: of a build with other statements, and of the builds
    before the first release. The next version is refused as well, and a copy, shared settings and the state say
    why.
    """

    class Other(Migration):
        def read_statements(self) -> str:
            return super().read_statements().replace("text", "varchar", 1)

    other = Other(files=VERSIONS[0].files)
    await migrate_schema(database, [other])
    storage = unmade_schema.settings(tmp_path)
    create_secret_file_if_missing(storage)
    options = StorageOptions(
        settings=SpoolSettings(), clock=SystemClock(), directory=tmp_path / "data", storage=storage
    )

    async def refused(message: str) -> None:
        before = await contents(database)
        for versions in (VERSIONS, [*VERSIONS, ADDS]):
            with pytest.raises(OtherSchema, match=re.escape(message)):
                await migrate_schema(database, versions)
        for attempt in (
            open_storage(options, engine=POSTGRES),
            tables_opener(options),
            administration.create_storage(storage, SpoolSettings()),
            administration.upgrade_schema(storage),
            administration.change_shared_settings(storage, {"hold": 1.0}),
            administration.describe_lost_commits(storage, tmp_path),
        ):
            with pytest.raises(OtherSchema, match=re.escape(message)):
                await attempt
        assert message in str((await administration.describe_database(storage))["problem"])
        assert before == await contents(database)

    await refused("another build of Tollhouse")
    for version in ("1", "16"):
        statement = database.fill_in_table_names(EARLIER)
        await database.run(partial(Connection.execute, query=statement, params=(version.encode(),)))
        await refused(f"whose tables differ (version {version};")


EARLIER = """
    WITH gone AS (DELETE FROM {schema}.facts WHERE name = 'digests')
    UPDATE {schema}.facts SET value = %s WHERE name = 'version'"""


class Next(Migration):
    """A migration of a future release, without a file."""

    def read_statements(self) -> str:
        return "CREATE TABLE {schema}.more (n int); ALTER TABLE {schema}.commits ADD COLUMN more bytea"


ADDS, NARROWS = Next(), Next(narrows=True)


async def test_the_next_version_is_added_once(database: Database) -> None:
    """
    The next version of a schema is added once, whichever of several processes starts the migration. Existing data
    stays. A process of this release works with the result.
    """
    await migrate_schema(database)
    await asyncio.gather(*(migrate_schema(database, [*VERSIONS, ADDS]) for _ in range(3)))
    await migrate_schema(database)
    assert await read_schema_version(database) == VERSION + 1
    columns = database.fill_in_table_names(
        "SELECT more FROM {schema}.commits UNION ALL SELECT NULL FROM {schema}.more"
    )
    assert [] == await database.read(lambda connection: connection.execute(columns).fetchall())


@pytest.mark.parametrize("versions", [[NARROWS], [ADDS, Migration()]], ids=["narrows", "two versions ahead"])
async def test_migration_is_refused_while_an_incompatible_node_runs(
    database: Database, clock: MovedClock, versions: list[Migration]
) -> None:
    """
    While a node runs that could not work with the new schema, nothing changes and the error names it. Without
    such nodes the migration runs.
    """
    await migrate_schema(database)
    older = PostgresLeases(database, clock, name="cellar", version="1.2.3")
    await older.set_routes([])
    with pytest.raises(NotAllowed, match=rf"cellar \(Tollhouse 1.2.3, version {VERSION}\)"):
        await migrate_schema(database, [*VERSIONS, *versions])
    assert await read_schema_version(database) == VERSION
    await older.close()
    await migrate_schema(database, [*VERSIONS, *versions])
    assert await read_schema_version(database) == VERSION + len(versions)
    with pytest.raises(OtherSchema, match=rf"version {VERSION + len(versions)} .* version {VERSION}"):
        await older.set_routes([])


async def test_node_stops_after_a_migration_that_it_missed(database: Database, clock: MovedClock) -> None:
    """
    A node stops if the schema was migrated while its session had ended. The task of the node that waits for a
    lease ends with the reason.
    """
    await migrate_schema(database)
    node = PostgresLeases(database, clock, name="cellar", version="1.2.3")
    await node.set_routes([])
    clock.move(SESSION_S + 1)
    await migrate_schema(database, [*VERSIONS, NARROWS])
    with pytest.raises(OtherSchema):
        await awaited(node.run_while_leased("retention", forever))
    await node.close()


async def test_a_node_waits_for_the_migration_under_way(database: Database, clock: MovedClock) -> None:
    """
    If a node opens before a migration and joins after it, the schema after the migration decides whether the
    node may work.
    """
    await migrate_schema(database)
    node = PostgresLeases(database, clock, name="late", version="1.2.3")
    joining: list[Future[None]] = []
    loop = asyncio.get_running_loop()

    def hold(connection: Connection) -> None:
        connection.execute(database.fill_in_table_names("LOCK TABLE {schema}.facts IN EXCLUSIVE MODE"))
        joining.append(asyncio.run_coroutine_threadsafe(node.set_routes([]), loop))
        while not connection.execute(WAITING, (database.name,)).fetchall():
            pass
        newer = str(VERSION + 1).encode()
        facts.store_fact(PostgresConnection(connection, database.fill_in_table_names), "oldest_node", newer)

    await database.transaction(hold)
    with pytest.raises(OtherSchema):
        await asyncio.wrap_future(joining[0])
    await node.close()


WAITING = """
    SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = %s AND c.relname = 'facts' AND NOT l.granted"""


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_schema_that_is_used_again_is_as_it_was_made(
    new_schema: Callable[[], Schema], schemas: Schemas
) -> None:
    """
    No row, partition or number of a test may remain for the next, because all tests of this engine rely on it.
    """
    schema = new_schema()
    database = schema.database()
    await migrate_schema(database)
    made = await contents(database)
    tables, _ = first_state(schema.name)
    assert tables == {name for name, _ in made}
    for text in (
        "CREATE TABLE {schema}.left_over (n int)",
        "INSERT INTO {schema}.facts VALUES ('left', 'over')",
    ):
        await database.run(
            lambda connection, text=text: connection.execute(  # type: ignore[misc]
                database.fill_in_table_names(text)
            )
        )
    # this connection is like one that a killed process left
    left = psycopg.connect(schema.dsn, application_name="somebody")
    left.execute(f"DELETE FROM {schema.name}.heads".encode())
    schemas.give_back(schema)
    left.close()
    assert schemas.take() == schema
    assert await contents(database) == made
    await database.close()


async def contents(database: Database) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Return each table's name and rows, without creation times."""

    def read(connection: Connection) -> list[tuple[str, list[tuple[object, ...]]]]:
        tables = [name for name, kind in connection.execute(KINDS, (database.name,)) if kind != "S"]
        found = []
        for table in sorted(tables):
            rows = connection.execute(
                database.fill_in_table_names(f"SELECT * FROM {{schema}}.{table}")
            ).fetchall()
            found.append(
                (table, [tuple(cell for cell in row if not isinstance(cell, float)) for row in rows])
            )
        return found

    return await database.read(read)
