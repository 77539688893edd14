"""The versions of a schema: made once whoever begins, and refused where a node is too old for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from spool.errors import SpoolFromTheFuture
from spool.postgres.database import Connection, Database
from spool.postgres.migrations import KEEP, VERSION, found_version, migrate
from tests.spool.postgres_cluster import KINDS, Schema, Schemas, first_state

pytestmark = pytest.mark.asyncio


async def test_several_processes_begin_at_once(unmade_schema: Schema) -> None:
    """Whoever comes first makes the schema; the others find it made."""
    databases = [Database(unmade_schema.dsn, schema=unmade_schema.name) for _ in range(4)]
    assert await found_version(databases[0]) == 0
    await asyncio.gather(*(migrate(database) for database in databases))
    assert [await found_version(database) for database in databases] == [VERSION] * 4
    for database in databases:
        await database.close()


@pytest.mark.parametrize(
    ("version", "oldest_node", "refused"),
    [
        (VERSION + 1, VERSION, False),
        (VERSION + 2, VERSION, True),
        (VERSION + 1, VERSION + 1, True),
    ],
)
async def test_a_node_works_beside_the_next_version_alone(
    database: Database, version: int, oldest_node: int, refused: bool
) -> None:
    """A schema one version ahead is worked with, unless it is not for older nodes; the error names both numbers."""
    await migrate(database)

    def say(connection: Connection) -> None:
        for name, value in (("version", version), ("oldest_node", oldest_node)):
            connection.execute(database.sql(KEEP), {"name": name, "value": str(value).encode()})

    await database.run(say)
    if refused:
        with pytest.raises(SpoolFromTheFuture, match=rf"version {version} .* version {VERSION}"):
            await migrate(database)
    else:
        await migrate(database)
        assert await found_version(database) == version


async def test_a_schema_that_is_used_again_is_as_it_was_made(
    new_schema: Callable[[], Schema], schemas: Schemas
) -> None:
    """What the tests of this engine stand on: no row, partition or number of one test is met by the next."""
    schema = new_schema()
    database = Database(schema.dsn, schema=schema.name)
    await migrate(database)
    made = await contents(database)
    tables, _ = first_state(schema.name)
    assert tables == {name for name, _ in made}
    for text in ("CREATE TABLE {schema}.left_over (n int)", "INSERT INTO {schema}.facts VALUES ('left', 'over')"):
        await database.run(lambda connection, text=text: connection.execute(database.sql(text)))  # type: ignore[misc]
    schemas.give_back(schema)
    assert schemas.take() == schema
    assert await contents(database) == made
    await database.close()


async def contents(database: Database) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Each table's name with its rows, without the times at which they were made."""

    def read(connection: Connection) -> list[tuple[str, list[tuple[object, ...]]]]:
        tables = [name for name, kind in connection.execute(KINDS, (database.name,)) if kind != "S"]
        found = []
        for table in sorted(tables):
            rows = connection.execute(database.sql(f"SELECT * FROM {{schema}}.{table}")).fetchall()
            found.append((table, [tuple(cell for cell in row if not isinstance(cell, float)) for row in rows]))
        return found

    return await database.read(read)
