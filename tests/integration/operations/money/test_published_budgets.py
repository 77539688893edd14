"""Budgets over HTTP: published fields, expansions, owners, alerts and refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import pytest_asyncio

from spool.registry.views import NewView
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.payloads import json_span, json_traces

SCOPES = [f"budgets:{verb}_budget" for verb in ("create", "read", "update", "delete")] + [
    "budgets:read_budgets"
]
CALL = Decimal("0.0006")  # 120 input tokens and 30 output tokens at the price of gpt-4o


class Asking:
    """A client whose key has every budget scope, at a gateway with one view."""

    def __init__(self, serving: Serving, key: str, view: str) -> None:
        self.serving = serving
        self.view = view
        self._key = key

    async def ask(
        self, method: str, path: str = "", body: object = None, *query: tuple[str, str], status: int = 200
    ) -> Any:
        url = f"/v2/budgets{path}" + (f"?{urlencode(query)}" if query else "")
        sent, kind = (b"", None) if body is None else (json.dumps(body).encode(), "application/json")
        answer = await self.serving.send(url, sent, kind, method=method, key=self._key)
        assert status == answer.status, answer.body
        return json.loads(answer.body)

    async def create(self, **fields: Any) -> Any:
        body = {"name": "Search", "view": {"id": self.view}, "default_amount": "0.001", **fields}
        return await self.ask("POST", "", body)

    async def calls(self, count: int, *, days_ago: int = 0, model: str = "gpt-4o") -> None:
        start = int((datetime.now(UTC) - timedelta(days=days_ago)).timestamp()) * 10**9
        times: dict[str, Any] = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 10**9)}
        spans = [json_span(model, **times) for _ in range(count)]
        assert 200 == (await self.serving.send("/v1/traces", json_traces(*spans))).status

    async def evaluate(self) -> None:
        assert (
            await self.serving.app.services.operators.money.require_budgets().evaluate_all()
        ).waits is None


@pytest_asyncio.fixture
async def asking(serve: Serve) -> Asking:
    serving = await serve()
    registry = serving.app.services.operators.installation.require_registry()
    draft = NewView(name="all", filter={}, principal_dimension="model")
    view = await registry.views.create(draft, known_dimensions=("model",), max_rows=10, actor=ACTOR)
    return Asking(serving, await serving.make_key("budgets", scopes=SCOPES), view.id)


def months(*back: int) -> Sequence[str]:
    """Return the first days of months, counted back from the current month (0)."""
    found, day = [], datetime.now(UTC).replace(day=1)
    for _ in range(max(back) + 1):
        found.append(day.date().isoformat())
        day = (day - timedelta(days=1)).replace(day=1)
    return [found[each] for each in back]


async def test_a_budget_from_creation_to_deletion(asking: Asking) -> None:
    """
    Published fields are returned as they were given. An update changes only the fields that it names.

    The next month is planned as well, because it may have begun in the zone of the update.
    """
    [month] = months(0)
    next_month = (date.fromisoformat(month) + timedelta(days=32)).replace(day=1).isoformat()
    planned = {f"{each}T00:00:00+00:00": {"amount": "1000.00"} for each in (month, next_month)}
    made = await asking.create(
        planned_limits={"monthly": planned},
        alerts={"100": "Y", "80": "N"},
        default_amount=None,
        cost_type="real_cost",
    )
    budget = made["budget"]
    assert {"monthly": {key: {"amount": "1000.00"} for key in (month, next_month)}} == budget[
        "planned_limits"
    ]
    assert budget["alerts"] == {"80": "N", "100": "Y"}
    assert budget["cost_type"] == "real_cost"
    assert budget["granularity"] == "monthly"
    assert {"id": asking.view} == budget["view"]
    assert re.fullmatch(r"\d+(\.\d+)?", budget["created"])
    changed = (await asking.ask("PATCH", f"/{budget['id']}", {"name": "Find", "time_zone": "Europe/Berlin"}))[
        "budget"
    ]
    differing = {name for name in budget if budget[name] != changed[name]}
    assert {"name", "time_zone", "last_updated", "version"} == differing
    assert changed == (await asking.ask("GET", f"/{budget['id']}"))["budget"]
    assert {"budget": {"id": budget["id"]}} == await asking.ask("DELETE", f"/{budget['id']}")
    await asking.ask("GET", f"/{budget['id']}", status=404)


async def test_actual_is_what_the_calls_cost(asking: Asking) -> None:
    """
    The list and the single budget state the exact sum. A new budget states at once which thresholds it has passed.
    """
    await asking.calls(3)
    made = await asking.create(alerts={"80": "Y", "100": "Y", "200": "Y"})
    assert [80, 100] == made["already_past"]
    id = made["budget"]["id"]
    shown = (await asking.ask("GET", f"/{id}", None, ("expand", "current")))["budget"]["current"]
    assert Decimal(shown["actual"]) == CALL * 3
    assert shown["planned"] == "0.001"
    assert shown["percent"] == 180
    assert shown["calls"] == 3
    assert shown["unpriced_calls"] == 0
    assert shown["is_whole"] is True
    [listed] = (await asking.ask("GET", "", None, ("expand", "current")))["budgets"]
    assert shown["actual"] == listed["current"]["actual"]
    assert listed["percent"] == 180
    assert "current" not in (await asking.ask("GET"))["budgets"][0]


async def test_a_month_has_a_history_and_a_burnup(asking: Asking) -> None:
    """
    The history shows each month or quarter with its planned amount. The burn-up shows running daily sums
    up to today.
    """
    await asking.calls(2)
    month, before = months(0, 1)
    made = await asking.create(planned_limits={"monthly": {before: {"amount": 7}}})
    path = f"/{made['budget']['id']}"
    shown = (await asking.ask("GET", path, None, ("expand", "history"), ("expand", "burnup")))["budget"]
    monthly, quarterly = shown["history"]["monthly"], shown["history"]["quarterly"]
    assert monthly[month]["planned"] == "0.001"
    assert Decimal(monthly[month]["actual"]) == CALL * 2
    assert {"actual": "0", "planned": "7"} == monthly[before]
    assert 4 == len(quarterly)
    assert CALL * 2 == Decimal(list(quarterly.values())[-1]["actual"])
    days = shown["burnup"]["daily"]
    assert month == next(iter(days))
    assert CALL * 2 == Decimal(list(days.values())[-1]["actual"])


async def test_a_forecast_needs_a_week(asking: Asking) -> None:
    """With fewer than seven days of data there is no forecast, and the answer gives the reason."""
    await asking.calls(1)
    path = f"/{(await asking.create())['budget']['id']}"
    shown = (await asking.ask("GET", path, None, ("expand", "forecast")))["budget"]["forecast"]
    assert shown["total"] is None
    assert "too early for a forecast" in shown["reason"]
    for days_ago in range(1, 9):
        await asking.calls(10, days_ago=days_ago)
    await asking.evaluate()
    shown = (await asking.ask("GET", path, None, ("expand", "forecast")))["budget"]["forecast"]
    assert shown["reason"] is None
    assert Decimal(shown["low"]) <= Decimal(shown["total"]) <= Decimal(shown["high"])
    [listed] = (await asking.ask("GET", "", None, ("expand", "forecast")))["budgets"]
    assert listed["forecast"] == shown
    assert "current" not in listed


async def test_owners_are_a_list(asking: Asking) -> None:
    """
    The owners of a budget are a list, and each has its own sum. Sorts and filters work as in every list.
    """
    await asking.calls(3)
    await asking.calls(1, model="o3")
    made = (await asking.create(per="model", alerts={"100": "Y"}))["budget"]
    page = await asking.ask("GET", f"/{made['id']}/owners")
    assert made["id"] == page["budget"]["id"]
    assert page["sorting"]["available"] == ["actual", "owner", "percent"]
    first, second = page["owners"]
    assert first["owner"] == "gpt-4o"
    assert Decimal(first["actual"]) == CALL * 3
    assert first["percent"] == 180
    assert first["fired"] == [100]
    assert second["owner"] == "o3"
    assert second["fired"] == []
    assert [] == (await asking.ask("GET", f"/{made['id']}/owners", None, ("owner", "nobody")))["owners"]
    current = (await asking.ask("GET", f"/{made['id']}", None, ("expand", "current")))["budget"]["current"]
    assert current["planned"] is None
    assert current["owners"] == {"count": 2, "past": 1, "left_out": 0}


async def test_alerts_are_a_list(asking: Asking) -> None:
    """Each alert shows the threshold, the time, the amount and whether a notification was sent."""
    made = (await asking.create(alerts={"80": "Y", "300": "Y"}))["budget"]
    await asking.calls(3)
    await asking.evaluate()
    page = await asking.ask("GET", f"/{made['id']}/alerts", None, ("kind", "actual"))
    [alert] = page["alerts"]
    assert ("actual", 80, "fired", True, None, months(0)[0]) == tuple(
        alert[name] for name in ("kind", "percent", "state", "told", "owner", "period")
    )
    assert CALL * 3 == Decimal(alert["value"])
    assert [] == (await asking.ask("GET", f"/{made['id']}/alerts", None, ("state", "cleared")))["alerts"]


REFUSED: Sequence[tuple[str, str, Any, int, str]] = [
    ("POST", "", {"name": "x"}, 400, "view"),
    ("POST", "", {"name": "x", "view": {"id": "none"}, "default_amount": "1"}, 400, "no view with this id"),
    ("POST", "", {"name": "x", "view": {"id": "V"}}, 400, "needs an amount"),
    ("POST", "", {"name": "x", "view": {"id": "V"}, "default_amount": "1", "cost_type": "invoiced"}, 400, "cost_t"),
    ("POST", "", {"name": "x", "view": {"id": "V"}, "default_amount": "1", "per": "shoe"}, 400, "dimension in per"),
    ("POST", "", {"name": "x", "view": {"id": "V"}, "default_amount": "1", "channels": ["a"]}, 400, "a channel"),
    ("POST", "", {"name": "x", "view": {"id": "V"}, "planned_limits": {"hourly": {}}}, 400, "one granularity"),
    (
        "POST", "",
        {"name": "x", "view": {"id": "V"}, "planned_limits": {"daily": {}, "monthly": {}}}, 400, "one granularity",
    ),
    ("POST", "", {"name": "search", "view": {"id": "V"}, "default_amount": "1"}, 409, "this view has a budget"),
    ("PATCH", "/B", {"silence": {"until": "soon"}}, 400, "silence.until"),
    ("PATCH", "/B", {"time_zone": "Asia/Kolkata"}, 400, "whole hours"),
    ("GET", "/B?expand=all", None, 400, "expand must be one of"),
    ("GET", "?expand=history", None, 400, "expand must be one of current"),
]  # fmt: skip


async def test_refusals_say_what_is_wrong(asking: Asking) -> None:
    """Every invalid request is refused with the field and its rule, and changes nothing."""
    budget = (await asking.create())["budget"]
    for method, path, body, status, words in REFUSED:
        sent = json.loads(json.dumps(body).replace('"V"', f'"{asking.view}"'))
        said = await asking.ask(method, path.replace("/B", f"/{budget['id']}"), sent, status=status)
        assert words in said["error"]["message"], (method, path, body)
        assert [budget] == [
            {**each, "percent": None} for each in (await asking.ask("GET"))["budgets"]
        ] or budget["percent"] == 0, (method, path, body)


async def test_the_gauges_show_the_running_period(asking: Asking) -> None:
    """After an evaluation, the metrics show spent, planned and their ratio by budget and view."""
    await asking.create(default_amount="0.0012")
    await asking.calls(1)
    await asking.evaluate()
    answer = await asking.serving.send("/metrics", b"", None, method="GET", key=None)
    lines = answer.body.decode().splitlines()
    assert 'tollhouse_budget_ratio{budget="Search",owner="",view="all"} 0.5' in lines
    assert 'tollhouse_budget_limit_dollars{budget="Search",owner="",view="all"} 0.0012' in lines
