"""Behind pgbouncer a connection is ours for one transaction: nothing is left on it, and nothing is expected of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from spool.clock import SystemClock
from spool.deliveries.values import RouteSpec, Settlement
from spool.engines import POSTGRES, open_storage
from spool.errors import SpoolUnavailable
from spool.identity import Identity
from spool.log.values import Submission
from spool.postgres.database import Connection, Database
from spool.postgres.migrations import VERSION, found_version, migrate
from spool.record import AI_TELEMETRY
from spool.registry.operators import Actor
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings
from spool.storage import StorageOptions
from tests.exporters.spools import call
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


async def test_a_storage_works_behind_a_pooler(pooler: str, fresh_schema: Schema, tmp_path: Path) -> None:
    """What is appended is read, cut into deliveries and settled, and a key is known."""
    settings = replace(replace(fresh_schema, dsn=pooler).settings(tmp_path), pooler="transaction")
    options = StorageOptions(directory=tmp_path, settings=SpoolSettings(hold=0), clock=SystemClock(), storage=settings)
    storage = await open_storage(options, engine=POSTGRES)
    assert storage.registry is not None
    await storage.registry.keys.create(name="one", scopes=(), use_cases=[SEND_AI_TELEMETRY], actor=Actor("a", "local"))
    await storage.deliveries.declare([RouteSpec(name="file/ai-telemetry", topic=AI_TELEMETRY)])
    for n in range(8):
        records = [call(2 * n + 1), call(2 * n + 2)]
        identities = [Identity(record.id) for record in records]
        await storage.log.append(
            Submission(topic=AI_TELEMETRY, received=2, records=list(records), identities=identities)
        )
    delivery = await storage.deliveries.due("file/ai-telemetry", now=time.time(), max_records=100)
    assert delivery is not None
    await storage.deliveries.settle(delivery, Settlement(delivered=delivery.last - delivery.first + 1))
    books = await storage.log.books()
    assert books.imbalances == []
    assert books.routes["file/ai-telemetry"]["delivered"] == 16
    assert sum(len(entry.records) for entry in await storage.log.read(AI_TELEMETRY, 1, 16)) == 16
    await storage.close()
