"""Commits on the shared server that wait for a standby which is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from spool.postgres.connections.standby import BARRIER
from tests.spool.postgres.test_replication import WAITING
from tests.spool.postgres_cluster import SUCCESSOR, Server


@pytest.fixture
async def waiting(cluster: Server) -> AsyncIterator[asyncio.Task[object]]:
    """A commit that waits for the standby SUCCESSOR, as all do that the shared server is asked to confirm."""
    cluster.change(synchronous_standby_names=SUCCESSOR)
    try:
        yield await commit_that_waits(cluster)
    finally:
        cluster.change(synchronous_standby_names="")


async def commit_that_waits(server: Server) -> asyncio.Task[object]:
    while True:  # the server takes its settings over some time after it was told to
        task: asyncio.Task[object] = asyncio.create_task(asyncio.to_thread(server.execute, BARRIER.decode()))
        while not task.done():
            if await asyncio.to_thread(server.execute, WAITING):
                return task
