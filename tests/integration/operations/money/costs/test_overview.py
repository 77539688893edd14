"""The figures of the console's first page in one answer. They equal the reports to which they link."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, counted_from

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
DAYS = ("2026-08-21", "2026-08-25", "2026-09-01", "2026-09-20", "2026-09-21")


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        made = [
            call(
                number, at=datetime.fromisoformat(f"{DAYS[number % 5]}T12:00+00:00").timestamp(), cost=f"1.{number}",
                cost_source="reported", request_model=f"model-{number % 8}", team=None if number % 3 else "search",
            )
            for number in range(40)
        ]  # fmt: skip
        await add(server.services.spool.log, counted_from("2026-07-31"), *made)
        yield server


async def asked(server: OperatorServer, path: str, **query: str) -> Any:
    answer = await server.ask("GET", f"{path}?{urlencode(query)}")
    assert 200 == answer.status, answer.payload
    return answer.payload


@pytest.mark.parametrize("inside", [False, True])
async def test_figures_are_those_of_reports(server: OperatorServer, inside: bool) -> None:
    """
    The answer has this month and today with their previous periods, thirty days by model, and the largest of
    other lists. It also works inside a view.
    """
    words = {"day": "2026-09-01", "text": "Contract begins"}
    assert 201 == (await server.ask("POST", "/annotations", words)).status
    query = {}
    if inside:
        view = {"name": "s", "filter": {"team": ["search"]}, "principal_dimension": "model"}
        made = await server.ask("POST", "/views", view)
        query = {"view": made.payload["view"]["id"]}
    found = (await asked(server, "/overview", **query))["overview"]
    month = await asked(server, "/report", compare="previous", **query)
    for name in ("cost", "calls", "errors", "cost_per_call"):
        assert month["total"][name] == found["month"][name], name
    assert month["total"]["previous"]["cost"] == found["month"]["previous"]["cost"]
    compared = await asked(server, "/comparison", by="model_family", top="3", range="this_month", **query)
    drivers = compared["comparison"]["drivers"]
    assert drivers == found["month"]["drivers"]
    assert [row["model_family"] for row in compared["rows"]][: len(drivers)] == [
        name for driver in drivers for name in driver["names"]
    ]
    assert drivers
    for driver in drivers:
        [name] = driver["names"]
        assert (
            f"{name} {'-' if driver['change'].startswith('-') else '+'}$"
            in compared["comparison"]["sentence"]
        )
        assert driver["reason"] in compared["comparison"]["sentence"]
    today = await asked(server, "/report", compare="previous", **{"from": "2026-09-21"}, **query)
    assert today["total"]["cost"] == found["today"]["cost"]
    assert today["total"]["previous"]["cost"] == found["today"]["previous"]["cost"]
    days = await asked(
        server,
        "/report",
        by="model_family",
        per="daily",
        top="5",
        show="cost",
        **{"from": "2026-08-23"},
        **query,
    )
    told = sorted((row["period"][:10], str(row["model_family"]), row["cost"]) for row in days["rows"])
    assert told == sorted((row["period"], str(row["model_family"]), row["cost"]) for row in found["days"])
    for name in ("model_family", "team", "user"):
        rows = await asked(
            server, "/report", by=name, top="5", show="cost", **{"from": "2026-08-23"}, **query
        )
        shown = {row[name]: row["cost"] for row in found["lists"][name]}
        assert {row[name]: row["cost"] for row in rows["rows"]} == shown
        assert sum(map(Decimal, shown.values())) == sum(Decimal(row["cost"]) for row in found["days"])
    marks = await asked(server, "/marks", **{"from": "2026-08-23"}, **query)
    assert marks == {name: found[name] for name in marks}
    assert "Contract begins" in [mark["text"] for mark in marks["marks"]]
    assert found["operation"]["has_records"]
    reported = await asked(server, "/report", show="reported", **{"from": "2026-08-23"}, **query)
    assert reported["total"]["reported"] == found["reported"]
    assert 0 == found["kinds"]["unpriced"]
    assert {"rows": [], "total_count": 0} == found["insights"]


async def test_an_unknown_view_is_refused(server: OperatorServer) -> None:
    assert 400 == (await server.ask("GET", "/overview?view=none")).status


async def test_the_days_of_the_chart_are_chosen(server: OperatorServer) -> None:
    """
    `from` and `to` select the days of the chart, the lists and the notes, but not this month and today. Too
    many days are refused.
    """
    for day in ("2026-08-24", "2026-08-26"):
        words = {"day": day, "text": f"on {day}"}
        assert 201 == (await server.ask("POST", "/annotations", words)).status
    usual = (await asked(server, "/overview"))["overview"]
    span = {"from": "2026-08-21", "to": "2026-08-25"}
    found = (await asked(server, "/overview", **span))["overview"]
    assert found["since"] == "2026-08-21"
    assert found["last"] == "2026-08-25"
    assert usual["month"] == found["month"]
    assert usual["today"] == found["today"]
    assert {"2026-08-21", "2026-08-25"} == {row["period"] for row in found["days"]}
    total = (await asked(server, "/report", **span))["total"]["cost"]
    for rows in (found["days"], *found["lists"].values()):
        assert Decimal(total) == sum(Decimal(row["cost"]) for row in rows)
    assert "on 2026-08-24" in [mark["text"] for mark in found["marks"]]
    assert "on 2026-08-26" not in [mark["text"] for mark in found["marks"]]
    for wrong in ("from=2026-06-01", "from=2026-09-10&to=2026-09-01", "from=soon"):
        assert 400 == (await server.ask("GET", f"/overview?{wrong}")).status, wrong


async def test_calls_by_what_is_known_of_their_cost(server: OperatorServer) -> None:
    """
    A call without a model counts as well. Failures and calls without tokens need no price. The numbers are those of a
    report of the same days, and add up to its calls.
    """
    at = datetime.fromisoformat("2026-09-20T12:00+00:00").timestamp()
    free: dict[str, Any] = {"cost": None, "cost_source": "none", "estimated_cost": None}
    none: dict[str, Any] = {"input_tokens": None, "output_tokens": None}
    made = [
        *[call(100 + number, at=at, request_model="large", **free) for number in range(3)],
        call(110, at=at, request_model="large", status="error", **free, **none),
        call(111, at=at, request_model="mini", status="error", **free, **none),
        call(112, at=at, request_model="silent", **free, **none),
        call(113, at=at, **free),
    ]
    await add(server.services.spool.log, *made)
    overview = (await asked(server, "/overview"))["overview"]
    assert {"(other)": 3, None: 1} == {
        row["model_family"]: row["unpriced"] for row in overview["lists"]["model_family"] if row["unpriced"]
    }
    assert 4 == overview["month"]["unpriced"] == overview["lists"]["team"][0]["unpriced"]
    kinds = overview["kinds"]
    assert {"priced": 32, "free": 2, "unpriced": 4, "without_usage": 1} == kinds
    total = (await asked(server, "/report", range="last_30d"))["total"]
    assert kinds == {name: total[name] for name in kinds}
    assert total["calls"] == sum(kinds.values())
    earlier = {"from": "2026-08-21", "to": "2026-08-25"}
    kinds = (await asked(server, "/overview", **earlier))["overview"]["kinds"]
    assert {"priced": 16, "free": 0, "unpriced": 0, "without_usage": 0} == kinds
