"""Logs of several nodes on one schema, without routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from spool.postgres.database import Connection
from spool.postgres.log.confirmed import ConfirmedCommits
from spool.postgres.log.log import PostgresLog
from spool.postgres.migrations import migrate_schema
from spool.settings import LOCAL, SpoolSettings
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import NOON
from tests.spool.postgres_cluster import Schema

SECRET = b"s" * 32
LogOpener = Callable[..., Awaitable[PostgresLog]]


class NoRoutes:
    """The needs of no routes at all."""

    def accounting_counts_by_route(self, connection: Connection) -> dict[str, dict[str, int]]:
        return {}

    def lowest_number_needed_by_routes(self, connection: Connection, topic: str) -> int | None:
        return None

    def skip_records_on_optional_routes(
        self, connection: Connection, first_kept_numbers: Mapping[str, int]
    ) -> Mapping[str, int]:
        return {}


@pytest.fixture
async def clock() -> MovedClock:
    return MovedClock(NOON)


@pytest.fixture
async def open_log(new_schema: Callable[[], Schema], clock: MovedClock) -> AsyncIterator[LogOpener]:
    """Return a function that opens a further node on the schema of this test."""
    schema = new_schema()
    async with AsyncExitStack() as stack:

        async def opener(
            *, durability: str = LOCAL, confirmed: ConfirmedCommits | None = None, **changes: Any
        ) -> PostgresLog:
            database = schema.database(clock=clock)
            stack.push_async_callback(database.close)
            await migrate_schema(database)
            log = PostgresLog(
                database,
                settings=SpoolSettings(**{"hold": 10, **changes}),
                clock=clock,
                secret=SECRET,
                routes=NoRoutes(),
                durability=durability,
                confirmed=confirmed,
            )
            await log.open()
            stack.push_async_callback(log.close)
            return log

        yield opener
