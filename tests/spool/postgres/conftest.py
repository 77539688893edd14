from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from spool.postgres.database import Database
from tests.spool.postgres.waiting_commits import waiting as waiting
from tests.spool.postgres_cluster import BEHIND_POOLER, Schema
from tests.spool.postgres_cluster import patience as patience


@pytest.fixture
async def database(unmade_schema: Schema, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """An open database without a schema."""
    schema = unmade_schema.behind(request.getfixturevalue("pooler")) if BEHIND_POOLER else unmade_schema
    opened = schema.database()
    yield opened
    await opened.close()
