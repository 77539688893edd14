"""The versions of a schema: made once whoever begins, and refused where a node is too old for it."""

from __future__ import annotations

import asyncio

import pytest

from spool.errors import SpoolFromTheFuture
from spool.postgres.database import Connection, Database
from spool.postgres.migrations import KEEP, VERSION, found_version, migrate
from tests.spool.postgres_cluster import Schema

pytestmark = pytest.mark.asyncio


async def test_several_processes_begin_at_once(fresh_schema: Schema) -> None:
    """Whoever comes first makes the schema; the others find it made."""
    databases = [Database(fresh_schema.dsn, schema=fresh_schema.name) for _ in range(4)]
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
