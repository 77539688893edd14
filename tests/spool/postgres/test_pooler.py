"""Behind pgbouncer a connection is ours for one transaction: nothing is left on it, and nothing is expected of it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from spool.errors import SpoolUnavailable
from spool.postgres.database import Connection, Database
from spool.postgres.migrations import VERSION, found_version, migrate
from tests.spool.postgres_cluster import Schema

pytestmark = pytest.mark.asyncio


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
    assert limits == [[("2s",)]] * 4
    count = database.sql("SELECT count(*) FROM {schema}.facts WHERE value = ''")
    for _ in range(8):  # more often than a statement is prepared where that is possible
        assert await database.read(lambda connection: connection.execute(count).fetchall()) == [(12,)]
    with pytest.raises(SpoolUnavailable, match="statement timeout"):
        await database.transaction(
            lambda connection: connection.execute("SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(10)")
        )
    await database.close()
