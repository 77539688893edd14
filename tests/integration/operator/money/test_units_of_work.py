"""What a session, a run of an agent or a pull request cost, over the operator API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest_asyncio

from spool.ledger.work import as_shown
from tests.integration.operator.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
# Each row has session, run, run that started it, pull request and cost.
SPENT = (
    ("first", None, None, "acme/shop#42", "1"),
    ("first", "a", None, "acme/shop#42", "2"),
    ("first", "b", "a", "acme/shop#43", "4"),
    ("second", "a", None, None, "8"),
    (None, None, None, None, "16"),
)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    calls = [
        call(
            number,
            at=NOW.timestamp() - 7200,
            session=session,
            run=run,
            parent_run=parent,
            tags={"pull_request": pull_request} if pull_request else {},
            cost=cost,
            cost_source="reported",
        )
        for number, (session, run, parent, pull_request, cost) in enumerate(SPENT)
    ]
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, *calls)
        yield server


async def asked(server: OperatorServer, query: str) -> Any:
    answer = await server.ask("GET", f"/report?{query}")
    assert 200 == answer.status, answer.payload
    return answer.payload


async def costs(server: OperatorServer, by: str, more: str = "") -> dict[str | None, str]:
    return {row[by]: row["cost"] for row in (await asked(server, f"by={by}{more}"))["rows"]}


async def test_each_unit_has_its_cost(server: OperatorServer) -> None:
    """Units add up to the total with the calls that have none. A run's id counts within its session."""
    first, second = (as_shown("session", name) for name in ("first", "second"))
    assert {first: "7", second: "8", None: "16"} == await costs(server, "session")
    assert {"acme/shop#42": "3", "acme/shop#43": "4", None: "24"} == await costs(server, "pull_request")
    runs: dict[str | None, str] = {None: "17"}
    runs |= {as_shown("run", run, session=session): cost for session, run, _, _, cost in SPENT if run}
    assert runs == await costs(server, "run")
    assert {first: "7"} == await costs(server, "session", "&where=session=first")
    assert {first: "7"} == await costs(server, "session", f"&where=session={first}")
    assert {second: "8", None: "16"} == await costs(server, "session", "&where=session!=first")
    assert {second: "8", None: "16", "(other)": "7"} == await costs(server, "session", "&top=1")
    assert {first: "3"} == await costs(server, "session", "&where=pull_request=acme/shop%2342")
    assert {first: "4", second: "8", None: "16"} == await costs(
        server, "session", "&where=pull_request!=acme/shop%2342"
    )
    assert {None: "16"} == await costs(server, "pull_request", "&where=session=")
    sessions = await asked(server, "unit=session&show=cost,units,cost_per_unit")
    assert ("31", "2", "7.5") == tuple(sessions["total"][name] for name in ("cost", "units", "cost_per_unit"))


async def test_a_wrong_question_names_the_right_one(server: OperatorServer) -> None:
    """Each refusal is an error of the request that says what to ask for."""
    for query, status, words in (
        ("by=session,run", 400, "one unit of work"),
        ("by=session&unit=run&show=units", 400, "filter by it instead"),
        ("by=session&per=hourly", 422, "use per=daily"),
        ("by=session&from=2026-01-01&to=2026-09-01", 422, "at most 92 days"),
        ("by=session&cost_type=billed_cost", 400, "use a counted cost_type"),
    ):
        answer = await server.ask("GET", f"/report?{query}")
        assert answer.status == status, answer.payload
        assert words in answer.payload["error"]["message"]


async def test_a_comparison_knows_units(server: OperatorServer) -> None:
    """What changed can be explained by session."""
    answer = await server.ask("GET", "/comparison?by=session&range=last_7d")
    assert {row["session"]: row["change"] for row in answer.payload["rows"]} == {
        as_shown("session", "first"): "7",
        as_shown("session", "second"): "8",
        None: "16",
    }
