"""Lists with many rows as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from spool.registry.permission_sets import ANSWER_PRIVACY_REQUESTS
from spool.registry.roles import FULL, NewRole, RoleLimits
from spool.registry.viewings import Viewing
from spool.statements import day_text
from tests.integration.conftest import ACTOR
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.rounds import as_proof


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as server:
        privacy = NewRole(
            name="privacy", data_access=FULL, permission_sets=(ANSWER_PRIVACY_REQUESTS,), members=(ADA,)
        )
        await server.registry.roles.create(privacy, known_dimensions=(), limits=RoleLimits(), actor=ACTOR)
        yield server


@pytest.mark.parametrize("count", [0, 10, as_proof(25_000)])
async def test_a_csv_has_as_many_rows_as_the_list_counts(server: OperatorServer, count: int) -> None:
    """A CSV of 10 rows, of 25,000 and of none has each row once, whatever one page holds."""
    now = server.clock.now()
    day = day_text(int(now))
    rows = [
        Viewing(day=day, viewer="ada", person="bo", face="api", page=f"/page/{number:05}", reason="=1+1")
        for number in range(count)
    ]
    await server.registry.viewings.add(rows, now)
    total = (await server.ask("GET", "/people/viewings")).payload["pagination"]["total_count"]
    answer = await server.ask("GET", "/people/viewings?format=csv&sort_key=id&sort_order=asc")
    assert (200, "text/csv; charset=utf-8") == (answer.status, answer.headers["Content-Type"])
    found = list(csv.DictReader(io.StringIO(answer.payload)))
    assert count == total == len(found)
    pages = [row["page"] for row in found]
    assert sorted(pages) == [f"/page/{number:05}" for number in range(count)]
    assert {"'=1+1"} >= {row["reason"] for row in found}
