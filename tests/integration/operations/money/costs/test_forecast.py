"""Forecasts of the current period over the operator API, day by day, with the method of budgets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest_asyncio

from spool.engines import MEMORY
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 12, tzinfo=UTC)  # this day is a Monday
WORKDAY, WEEKEND = "10", "2"


def spent(team: str, first: datetime, number: int) -> list[Any]:
    """Return a call per day until now: ten dollars on weekdays, two on weekends."""
    days = [first + timedelta(days=n) for n in range((NOW - first).days + 1)]
    return [
        call(
            number + place, at=day.timestamp(), team=team, cost=WEEKEND if day.weekday() > 4 else WORKDAY,
            cost_source="reported", request_model="gpt-4o",
        )
        for place, day in enumerate(days)
    ]  # fmt: skip


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, engine=MEMORY, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, *spent("search", datetime(2026, 6, 1, 9, tzinfo=UTC), 0))
        await add(server.services.spool.log, *spent("new", datetime(2026, 9, 18, 9, tzinfo=UTC), 1000))
        yield server


async def asked(server: OperatorServer, query: str) -> Any:
    answer = await server.ask("GET", f"/forecast?{query}")
    assert 200 == answer.status, answer.payload
    return answer.payload["forecast"]


async def test_it_is_what_a_budget_of_the_same_calls_forecasts(server: OperatorServer) -> None:
    """
    Total and bounds of a forecast equal those of a budget of the same calls to the cent. The coming days and the
    spend so far add up to the total.
    """
    made = await server.ask(
        "POST", "/views", {"name": "s", "filter": {"team": ["search"]}, "principal_dimension": "model"}
    )
    view = made.payload["view"]["id"]
    budget = await server.ask(
        "POST", "/budgets", {"name": "b", "view": {"id": view}, "default_amount": "500"}
    )
    shown = await server.ask("GET", f"/budgets/{budget.payload['budget']['id']}?expand=forecast")
    of_budget = shown.payload["budget"]["forecast"]
    found = await asked(server, "where=team=search")
    assert [of_budget[name] for name in ("total", "low", "high")] == [
        found[name] for name in ("total", "low", "high")
    ]
    assert found == await asked(server, f"view={view}")
    assert found["days"][0]["day"] == "2026-09-21"
    assert found["days"][-1]["day"] == "2026-09-30"
    assert len(found["days"]) == 10
    today = Decimal(WORKDAY)
    days = sum(Decimal(day["amount"]) for day in found["days"])
    assert abs(Decimal(found["actual"]) - today + days - Decimal(found["total"])) <= Decimal(
        "0.1"
    )  # the tolerance allows for amounts that are each cut to a cent
    assert all(Decimal(day["low"]) <= Decimal(day["amount"]) <= Decimal(day["high"]) for day in found["days"])
    saturday = next(day for day in found["days"] if day["day"] == "2026-09-26")
    assert Decimal(saturday["amount"]) < Decimal(found["days"][1]["amount"])


async def test_a_quarter_in_a_zone_and_too_little_history(server: OperatorServer) -> None:
    """
    The days of a forecast follow the time zone. With less than a week of history, the answer gives the reason
    instead of a number.
    """
    quarter = await asked(server, "per=quarterly&tz=Asia/Tokyo&where=team=search")
    assert (
        datetime.fromisoformat(quarter["from"]).astimezone(timezone_of("+09:00")).isoformat()
        == "2026-07-01T00:00:00+09:00"
    )
    assert quarter["days"][-1]["day"] == "2026-09-30"
    early = await asked(server, "where=team=new")
    assert early["total"] is None
    assert early["days"] == []
    assert "too early for a forecast" in early["reason"]
    refused = await server.ask("GET", "/forecast?per=daily")
    assert 400 == refused.status


def timezone_of(offset: str) -> Any:
    return datetime.fromisoformat(f"2026-01-01T00:00:00{offset}").tzinfo
