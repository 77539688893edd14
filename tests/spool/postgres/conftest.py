"""What the tests of PostgreSQL's engine share: a database in a schema of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from spool.postgres.database import Database
from tests.spool.postgres_cluster import Schema


@pytest_asyncio.fixture
async def database(unmade_schema: Schema) -> AsyncIterator[Database]:
    """An open database whose schema is not made yet."""
    opened = Database(unmade_schema.dsn, schema=unmade_schema.name)
    yield opened
    await opened.close()
