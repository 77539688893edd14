"""Writers of several rows lock them in one order, whatever the order of the rows in the table."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg

from spool.clock import SystemClock
from spool.container_files.container_rows import CONTAINER_USAGE, UsageDocument
from spool.engines import POSTGRES, open_storage
from spool.settings import SpoolSettings
from spool.storage import StorageOptions
from tests.spool.postgres_cluster import Schema

WAITS_FOR_A_ROW = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"


async def test_old_days_are_deleted_in_the_order_of_their_keys(fresh_schema: Schema, tmp_path: Path) -> None:
    options = StorageOptions(
        directory=tmp_path,
        settings=SpoolSettings(),
        clock=SystemClock(),
        storage=fresh_schema.settings(tmp_path),
    )
    storage = await open_storage(options, engine=POSTGRES)
    usage = storage.small.open_table(CONTAINER_USAGE)
    for day in (2, 1):
        document = UsageDocument(account="a", region="r", cluster="c", day=day, changed_at=0.0, body=b"{}")
        await usage.store_documents([document])
    locked = f"SELECT FROM {fresh_schema.name}.container_usage WHERE day = %s FOR UPDATE NOWAIT"
    async with await psycopg.AsyncConnection.connect(fresh_schema.dsn) as other:
        await other.execute(locked, [1])
        deletion = asyncio.create_task(usage.delete_old_days(3))
        while not (await (await other.execute(WAITS_FOR_A_ROW)).fetchall()):
            assert not deletion.done()
            await asyncio.sleep(0.01)
        await other.execute(locked, [2])
    await deletion
    assert [] == await usage.days_since(0)
    await storage.close()
