"""The inspector on real storage: through the operator API, on demand, and as a background task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.intake.rate_cards.card import CardUnreadable
from gateway.money.insights import inspector as inspecting
from gateway.money.insights.detector_facts import InsightFacts
from gateway.money.insights.inspector import DETECTORS, run_detectors
from gateway.operations.money.insights import make_insight_updater
from spool.deliveries.values import RouteSpec
from spool.errors import SpoolUnavailable
from spool.record import AI_TELEMETRY
from spool.registry.insights import Finding, FindingMergeCounts
from spool.registry.views import Anomalies, NewView
from tests.integration.conftest import ACTOR
from tests.integration.operations.server import OperatorServer, operator_server
from tests.spool.contract.examples import add, call
from tests.waiting import limited

ROUTE = f"upstream/{AI_TELEMETRY}"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as opened:
        yield opened


async def park(server: OperatorServer, state: str = "parked") -> None:
    await server.services.spool.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])
    await server.services.spool.deliveries.set_route_state(ROUTE, state, "401")


async def test_from_the_server_to_the_list_and_back(server: OperatorServer) -> None:
    """A parked route is found, worked on and addressed. It is new again when the route is parked again."""
    await park(server)
    assert {"new": 1, "again": 0, "reopened": 0, "gone": 0, "left_out": 0, "failed": []} == (
        await server.ask("POST", "/insights/run", {})
    ).payload["inspection"]
    listed = (await server.ask("GET", "/insights", sort_key="cost_impact")).payload
    [item] = listed["insights"]
    assert {"insights", "counts", "pagination", "filtering", "sorting"} == set(listed)
    assert item["title"] == f"The route {ROUTE} is paused"
    assert item["category"] == "delivery"
    assert item["status"] == "new"
    path = f"/insights/{item['id']}"
    assert (
        "addressed" == (await server.ask("PATCH", path, {"status": "addressed"})).payload["insight"]["status"]
    )
    assert (
        "ada@example.com"
        == (await server.ask("POST", f"{path}/comments", {"message": "new key"})).payload["comment"]["author"]
    )
    assert 0 == (await server.ask("POST", "/insights/run", {})).payload["inspection"]["reopened"]
    await park(server, "running")
    assert 1 == (await server.ask("POST", "/insights/run", {})).payload["inspection"]["gone"]
    await park(server)
    assert 1 == (await server.ask("POST", "/insights/run", {})).payload["inspection"]["reopened"]
    shown = (await server.ask("GET", path)).payload
    assert shown["insight"]["status"] == "new"
    assert [each["message"] for each in shown["comments"]] == ["new key"]
    assert 1 == (await server.ask("GET", f"{path}/comments")).payload["pagination"]["total_count"]


async def test_what_is_refused(server: OperatorServer) -> None:
    """A refused request about insights has the error form of every operator call."""
    for method, path, body, status, words in (
        ("GET", "/insights/none", None, 404, "no insight has this id"),
        ("PATCH", "/insights/none", {"status": "new"}, 404, "no insight has this id"),
        ("PATCH", "/insights/none", {"status": "open"}, 400, "status must be one of"),
        ("PATCH", "/insights/none", {"title": "x"}, 400, "title"),
        ("POST", "/insights/none/comments", {"message": "x"}, 404, "no insight has this id"),
        ("POST", "/insights/run", {"now": True}, 400, "now"),
    ):
        answer = await server.ask(method, path, body)
        assert status == answer.status
        assert words in answer.error[2]


async def test_dead_letters_are_weighed(server: OperatorServer) -> None:
    """Records that a destination rejected are reported with the cost of their calls."""
    await add(
        server.services.spool.log, *(call(each, cost="1.25", cost_source="reported") for each in range(3))
    )
    deliveries = server.services.spool.deliveries
    await deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])
    for _ in range(2):
        delivery = await deliveries.take_due_delivery(ROUTE, now=server.clock.now(), max_records=1)
        assert delivery is not None
        await deliveries.set_aside(delivery, error="too old", status="422")
    await make_insight_updater(server.services).find_and_store_insights()
    items = (await server.ask("GET", "/insights")).payload["insights"]
    assert [f"{ROUTE} rejected 2 records within a day"] == [
        item["title"] for item in items if "rejected" in item["title"]
    ]
    assert "2.50" in {item["cost_impact"] for item in items}


async def test_an_anomaly_is_looked_for_inside_each_view(server: OperatorServer) -> None:
    """
    Spend outside a view's filter causes no anomaly in the view. Broken views and views without anomaly
    detection are skipped.
    """
    day, now = 86400, server.clock.now()
    usual = [("search", ago, "10") for ago in range(1, 30)] + [("ads", ago, "0.01") for ago in range(1, 30)]
    spent = enumerate([*usual, ("search", 1, "70"), ("ads", 2, "500")])
    await add(
        server.services.spool.log,
        *(
            call(n, at=now - ago * day, team=team, cost=cost, cost_source="reported")
            for n, (team, ago, cost) in spent
        ),
    )
    known = ("team", "model", "tag:gone")
    for name, fields in (
        ("search", {"filter": {"team": ("search",)}}),
        ("not wanted", {"anomalies": Anomalies(enabled=False)}),
        ("broken", {"group_by": ("tag:gone",)}),
    ):
        stated: dict[str, Any] = {"filter": {}, **fields}
        draft = NewView(name=name, principal_dimension="team", **stated)
        await server.registry.views.create(draft, known_dimensions=known, max_rows=9, actor=ACTOR)
    await make_insight_updater(server.services).find_and_store_insights()
    items = (await server.ask("GET", "/insights")).payload["insights"]
    [anomaly] = [item for item in items if item["title"].startswith("The view")]
    assert anomaly["cost_impact"] == "70.00"
    assert "The view search spent $80.00" in anomaly["title"]
    assert "the team search with $80.00" in anomaly["description"]


async def test_an_insight_ends_with_its_state(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An insight about a route ends as soon as the route runs again, before the next full inspection is due.
    """
    monkeypatch.setattr(inspecting, "STATES_EVERY_S", 0)
    task_of = make_insight_updater(server.services)
    looks: asyncio.Queue[inspecting.InspectionReport] = asyncio.Queue()
    look = task_of.find_and_store_insights

    async def inspect() -> inspecting.InspectionReport:
        report = await look()
        looks.put_nowait(report)
        return report

    monkeypatch.setattr(task_of, "find_and_store_insights", inspect)
    await park(server)
    task = asyncio.create_task(task_of.run())
    async with limited():
        assert 1 == (await looks.get()).merged.new
        assert not await task_of.has_changed_state()
        await park(server, "running")
        assert 1 == (await looks.get()).merged.gone
        assert not await task_of.has_changed_state()
    assert looks.empty()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [item] = (await server.ask("GET", "/insights")).payload["insights"]
    assert "addressed" == item["status"]


def broken(facts: InsightFacts) -> Sequence[Finding]:
    """Raise, like a detector with a bug."""
    raise ZeroDivisionError


def test_one_mistake_does_not_silence_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """If a detector fails, the answer and the log name it, and all other detectors run."""
    seen = run_detectors(InsightFacts(now=0.0), (broken, *DETECTORS))
    assert ["broken"] == list(seen.failed)
    assert [detector.__name__ for detector in DETECTORS] == list(seen.looked_for)
    assert "a detector failed" in caplog.text


@pytest.mark.parametrize(
    "error", [SpoolUnavailable("disk full"), CardUnreadable("not JSON"), OSError("gone")]
)
async def test_failed_inspection_is_postponed_and_the_next_one_runs(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A failed inspection is postponed, and the next one runs."""
    monkeypatch.setattr(inspecting, "EVERY_S", 0)
    looked = asyncio.Event()
    task_of = make_insight_updater(server.services)
    failures = [error]

    async def inspect() -> inspecting.InspectionReport:
        if failures:
            raise failures.pop()
        looked.set()
        await asyncio.sleep(3600)
        return inspecting.InspectionReport(
            merged=FindingMergeCounts(new=0, again=0, reopened=0, gone=0, left_out=0), failed=()
        )

    monkeypatch.setattr(task_of, "find_and_store_insights", inspect)
    task = asyncio.create_task(task_of.run())
    async with limited():
        await looked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
