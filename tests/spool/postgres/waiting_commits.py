"""Commits on the shared server that wait for a standby that does not exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from spool.postgres.connections.standby import BARRIER
from tests.spool.postgres.test_replication import WAITING
from tests.spool.postgres_cluster import SUCCESSOR, Server


@pytest.fixture
async def waiting(cluster: Server) -> AsyncIterator[asyncio.Task[object]]:
    """Yield a commit that waits for the standby SUCCESSOR, as all commits to be confirmed then do."""
    cluster.change(synchronous_standby_names=SUCCESSOR)
    try:
        yield await commit_that_waits(cluster)
    finally:
        cluster.change(synchronous_standby_names="")


async def commit_that_waits(server: Server) -> asyncio.Task[object]:
    while True:  # wait, because the server applies its settings some time later
        task: asyncio.Task[object] = asyncio.create_task(asyncio.to_thread(server.execute, BARRIER.decode()))
        while not task.done():
            if await asyncio.to_thread(server.execute, WAITING):
                return task
