"""
Amounts in other currencies over the operator API: converted to dollars or another currency, or without a rate.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest_asyncio

from gateway.configuration.sections import CurrencyRate, CurrencySettings
from gateway.money.budgets.evaluator import budget_gauges
from gateway.money.insights.detector_facts import InsightFacts
from gateway.money.insights.detectors.prices import missing_rate
from gateway.service.assembly.storage import ledger_rates
from tests.integration.operations.money.costs.test_report import NOW, report
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

AT = datetime(2026, 9, 20, 12, tzinfo=UTC).timestamp()
RATES = CurrencySettings(rate=(CurrencyRate(currency="EUR", usd=Decimal("1.25")),))


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        calls = [
            call(1, at=AT, request_model="a", cost="1", cost_source="reported"),
            call(2, at=AT, request_model="a", charges={"EUR": "2"}, cost_source="reported"),
            call(
                3, at=AT, request_model="b", charges={"CHF": "3"}, cost_source="reported", estimated_cost="9"
            ),
        ]
        await add(server.services.spool.log, *calls)
        yield server


async def test_costs_are_queried_in_a_currency(server: OperatorServer) -> None:
    """
    If costs are queried in a currency, an amount without a rate is listed and in no sum, and no estimate replaces
    it.
    """
    before = await report(server, ("by", "model"))
    assert before["report"]["currency"] == "USD"
    assert before["report"]["unconverted"] == {"CHF": "3", "EUR": "2"}
    assert "1" == before["total"]["cost"]
    server.services.money.ledger.rates = ledger_rates(RATES)
    for currency, total, rows, unconverted in (
        ("USD", "3.5", ["3.5", "0"], {"CHF": "3"}),
        ("EUR", "2.8", ["2.8", "0"], {"CHF": "3"}),
        ("CHF", "3", ["0", "3"], {"EUR": "2", "USD": "1"}),
    ):
        found = await report(server, ("by", "model"), ("currency", currency))
        assert found["total"]["cost"] == total
        assert found["report"]["unconverted"] == unconverted
        assert rows == [row["cost"] for row in found["rows"]]
        assert {"CHF": "3", "EUR": "2"} == found["report"]["charges"]
    refused = await report(server, ("currency", "ACU"), status=400)
    assert "currency" in refused["error"]["message"]


async def test_a_budget_names_what_its_sum_lacks(server: OperatorServer) -> None:
    """
    The current period of a budget, each owner and the notification list amounts without a rate. The list is empty
    if the rate is known, or if the budget counts calls.
    """
    server.registry.notices.channels = ("ops",)
    view = (
        await server.ask("POST", "/views", {"name": "all", "filter": {}, "principal_dimension": "model"})
    ).payload
    of_view = {
        "view": {"id": view["view"]["id"]},
        "default_amount": "2",
        "alerts": {"100": "Y"},
        "channels": ["ops"],
    }
    ids = {}
    for name, more in (("all", {}), ("each", {"per": "model"}), ("calls", {"measure": "calls"})):
        made = await server.ask("POST", "/budgets", {**of_view, "name": name, **more})
        ids[name] = made.payload["budget"]["id"]
    services = server.services.money.require_budgets()
    await services.evaluate_all()

    async def lacks(name: str) -> Any:
        shown = await server.ask("GET", f"/budgets/{ids[name]}", expand="current")
        return shown.payload["budget"]["current"]["unconverted"]

    assert [{"CHF": "3", "EUR": "2"}, {"CHF": "3", "EUR": "2"}, {}] == [await lacks(name) for name in ids]
    owners = (await server.ask("GET", f"/budgets/{ids['each']}/owners")).payload["owners"]
    assert {"a": {"EUR": "2"}, "b": {"CHF": "3"}} == {each["owner"]: each["unconverted"] for each in owners}
    await add(server.services.spool.log, call(4, at=AT, request_model="a", cost="5", cost_source="reported"))
    await services.evaluate_all()
    words = "3 CHF, 2 EUR are not in these sums: no rate to USD is known (docs/money/currencies.md)."
    [notice] = [
        each.notice
        for each in await server.registry.notices.waiting_notifications()
        if "all" == each.notice.fields.get("budget")
    ]
    assert words in notice.text
    server.services.money.ledger.rates = ledger_rates(
        CurrencySettings(rate=(*RATES.rate, CurrencyRate(currency="CHF", usd=Decimal(1))))
    )
    assert [{}] == [await lacks("all")]


async def test_a_budget_in_another_currency(server: OperatorServer) -> None:
    """
    The spend of a budget in another currency is converted at the rate of each day. Notices name the currency, the
    impact of the insight is in dollars, and metrics in dollars leave the budget out.
    """
    server.registry.notices.channels = ("ops",)
    server.services.money.ledger.rates = ledger_rates(RATES)
    view = (
        await server.ask("POST", "/views", {"name": "all", "filter": {}, "principal_dimension": "model"})
    ).payload["view"]
    draft = {"view": {"id": view["id"]}, "default_amount": "2", "alerts": {"100": "Y"}, "currency": "EUR"}
    made = await server.ask("POST", "/budgets", {**draft, "name": "Euro"})
    budget = made.payload["budget"]
    assert (201, "EUR", [100]) == (made.status, budget["currency"], made.payload["already_past"])
    path = f"/budgets/{budget['id']}"
    current = (await server.ask("GET", path, expand="current")).payload["budget"]["current"]
    assert ("2.8", {"CHF": "3"}, 140) == (current["actual"], current["unconverted"], current["percent"])
    assert 200 == (await server.ask("PATCH", path, {"default_amount": "3", "alerts": {"100": "Y"}})).status
    await add(server.services.spool.log, call(4, at=AT, request_model="a", cost="5", cost_source="reported"))
    services = server.services.money.require_budgets()
    await services.evaluate_all()
    [notice] = [each.notice for each in await server.registry.notices.waiting_notifications()]
    assert "Budget Euro passed 100 %: 6.80 EUR of 3.00 EUR" == notice.title
    assert notice.fields["currency"] == "EUR" and "no rate to EUR is known" in notice.text
    [insight] = await server.registry.insights.detector_insights()
    assert "3.00 EUR" in insight.title and Decimal("4.75") == Decimal(insight.cost_impact)
    [gauge] = budget_gauges(services.figures.values())
    assert (None, None, None) == (gauge.spent, gauge.limit, gauge.forecast)
    assert gauge.ratio == 6.8 / 3

    server.services.money.ledger.rates = None
    await services.evaluate_all()
    problem = (await server.ask("GET", path)).payload["budget"]["problem"]
    assert "no exchange rate from USD to EUR is known for today" in problem
    assert 200 == (await server.ask("PATCH", path, {"currency": "USD"})).status
    in_dollars = (await server.ask("GET", path, expand="current")).payload["budget"]
    assert (None, "6") == (in_dollars["problem"], in_dollars["current"]["actual"])
    for wrong, words in (
        ({"measure": "calls"}, "a budget in EUR needs the measure cost"),
        ({"cost_type": "billed_cost"}, "a budget in EUR needs the measure cost and counted costs"),
        ({"currency": "credits"}, "currency must be one of"),
    ):
        refused = await server.ask("POST", "/budgets", {**draft, "name": "Wrong", **wrong})
        assert 400 == refused.status and words in str(refused.payload)


async def test_an_insight_names_what_has_no_rate() -> None:
    """Each currency without a rate has its own insight."""
    found = missing_rate(InsightFacts(now=AT, unconverted={"CHF": "3", "JPY": "7"}))
    assert ["No exchange rate for CHF", "No exchange rate for JPY"] == [each.draft.title for each in found]
    assert "3 CHF" in found[0].draft.description
