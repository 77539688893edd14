"""Budgets, insights and recommendations as assistants read them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from gateway.bills.plans.declared import NewPlan, PlanTable, Seat
from gateway.money.budgets.declared import BudgetTable, NewBudget, ViewName
from spool.registry.insights import ADDRESSED, InsightDraft
from spool.registry.registry import Registry
from spool.registry.views import NewView
from tests.integration.conftest import ACTOR
from tests.integration.mcp.conftest import Assistant
from tests.integration.payloads import json_span
from tests.spool.savings import SAVING


async def make_budget(registry: Registry, name: str, **fields: Any) -> None:
    draft = NewView(name=name, filter={}, principal_dimension="model")
    view = await registry.views.create(draft, known_dimensions=("model",), max_rows=100, actor=ACTOR)
    budget = NewBudget(name=name, view=ViewName(id=view.id), default_amount="0.001", **fields)
    await registry.declared_table(BudgetTable).create(
        budget, known_dimensions=("model",), max_rows=100, actor=ACTOR
    )


async def test_budget_answer_states_spend_plan_and_missing_forecast(assistant: Assistant) -> None:
    """
    The answer states spend, plan and why there is no forecast yet. A wrong name returns the nearest one.
    """
    registry = assistant.serving.app.services.operators.installation.require_registry()
    assert 0 == (await assistant.content("get_budgets"))["budget_count"]
    await make_budget(registry, "Search")
    await make_budget(registry, "By model", per="model")
    await assistant.calls("gpt-4o", "gpt-4o", "gpt-4o")
    cost = (await assistant.content("get_cost_data", date_range="month_to_date"))["total"]["cost"]
    (found,) = (await assistant.content("get_budgets", name="Search"))["budgets"]
    assert found["spent"] == cost
    assert found["planned"] == "0.001"
    assert found["unit"] == "USD"
    assert int(Decimal(cost) / Decimal("0.001") * 100) == found["percent"]
    assert "history" in found["no_forecast_because"]
    assert found["forecast"] is None
    (found,) = (await assistant.content("get_budgets", name="By model"))["budgets"]
    assert found["per"] == "model"
    assert found["planned"] is None
    assert found["owner_count"] == 1
    assert found["owners_past"] == 1
    cut = await assistant.content("get_budgets", limit=1)
    assert len(cut["budgets"]) == 1
    assert cut["budget_count"] == 2
    assert cut["truncated"] is True
    assert "did you mean Search" in await assistant.mistake("get_budgets", name="serach")


async def test_findings_come_in_one_list_by_their_size(assistant: Assistant) -> None:
    """Closed insights appear only on request. Savings are summed."""
    registry = assistant.serving.app.services.operators.installation.require_registry()
    spike = await registry.insights.create(
        InsightDraft(title="Spike | of\nsearch", category="spike", cost_impact="1000000.5"), actor=ACTOR
    )
    small = await registry.insights.create(
        InsightDraft(title="Small", category="other", cost_impact="0"), actor=ACTOR
    )
    await registry.recommendations.merge_savings([SAVING], looked_for=[SAVING.type])
    result = await assistant.call("get_insights")
    found = result["structuredContent"]
    assert ["insight", "recommendation", "insight"] == [each["kind"] for each in found["insights"]]
    assert ["spike", SAVING.type, "other"] == [each["category"] for each in found["insights"]]
    assert found["insights"][0]["impact"] == "1000000.5"
    assert SAVING.monthly_savings == found["monthly_savings"]
    assert "| insight | Spike \\| ofsearch | spike | new | 1000000.50 |" in result["content"][0]["text"]
    assert "| insight | Small | other | new | - |" in result["content"][0]["text"]  # nobody stated an impact

    async def ids(**asked: Any) -> list[str]:
        return [each["id"] for each in (await assistant.content("get_insights", **asked))["insights"]]

    await registry.insights.change(small.id, status=ADDRESSED, actor=ACTOR)
    assert [spike.id] == await ids(kind="insight")
    assert [small.id] == await ids(status=["addressed"])
    assert [spike.id] == await ids(category="spike")
    assert [spike.id] == await ids(limit=1)
    none = await assistant.call("get_insights", category="spikes")
    assert (
        f"No finding has this category; the categories are {SAVING.type}, spike."
        in none["content"][0]["text"]
    )


async def test_recommendations_are_listed_with_their_reasons(assistant: Assistant) -> None:
    """
    The largest recommendations come first. They can be filtered by type, status and owner. A wrong value
    returns the nearest one.
    """
    table = assistant.serving.app.services.operators.installation.require_registry().recommendations
    assert 0 == (await assistant.content("get_optimize_recs"))["recommendation_count"]
    large = replace(SAVING, key="batch:1", type="batch", monthly_savings="12.5", dimensions={"team": ["ads"]})
    await table.merge_savings([SAVING, large], looked_for=[SAVING.type, large.type])

    async def types(**asked: Any) -> list[str]:
        return [
            each["type"]
            for each in (await assistant.content("get_optimize_recs", **asked))["recommendations"]
        ]

    found = await assistant.content("get_optimize_recs")
    assert ["batch", SAVING.type] == [each["type"] for each in found["recommendations"]]
    assert "13.4" == found["total_monthly_savings"]
    shown = found["recommendations"][1]
    assert SAVING.formula == shown["formula"]
    assert SAVING.assumptions == shown["assumptions"]
    assert shown["confidence"] == "exact"
    assert "| certain |" in (await assistant.call("get_optimize_recs"))["content"][0]["text"]
    assert {"model": "m", "provider": None, "mode": "priority"} == shown["current"]
    assert [SAVING.type] == await types(filters={"team": ["search"]})
    assert ["batch"] == await types(type="batch")
    assert ["batch"] == await types(limit=1)
    assert [] == await types(status=["ignored"])
    await assistant.calls("gpt-4o")
    assert [] == await types(filters={"model": ["gpt-4o"]})
    assert "did you mean search" in await assistant.mistake("get_optimize_recs", filters={"team": ["serach"]})
    assert "did you mean team" in await assistant.mistake("get_optimize_recs", filters={"teams": ["search"]})
    none = await assistant.call("get_optimize_recs", type="batches")
    assert f"No recommendation matches: the types are batch, {SAVING.type}." in none["content"][0]["text"]


async def test_plans_are_listed_with_their_sums(assistant: Assistant) -> None:
    """
    In this answer about plans, the fee of the seat includes 0.0001 of usage, so the rest of its call is extra
    usage. A call without a seat is pay-as-you-go.
    """
    registry = assistant.serving.app.services.operators.installation.require_registry()
    view = await registry.views.create(
        NewView(name="all", filter={}, principal_dimension="user"),
        known_dimensions=("user",),
        max_rows=9,
        actor=ACTOR,
    )
    plan = NewPlan(
        name="Claude", view=view.id, fee="31", included="0.0001", overage_price="1.5",
        seats=(Seat(user="ann", since="2020-01-01"),),
    )  # fmt: skip
    await registry.declared_table(PlanTable).create(plan, max_rows=9, actor=ACTOR)
    stated = [*json_span("gpt-4o")["attributes"], {"key": "user.id", "value": {"stringValue": "ann"}}]
    await assistant.calls("gpt-4o", attributes=stated)
    await assistant.calls("gpt-4o")
    found = await assistant.content("get_plan_costs")
    total = found["total"]
    assert total["overage"] == "0.00075"  # the cost of 0.0006 minus the included usage, times 1.5
    assert total["included_value"] == "0.0001"
    assert total["metered"] == "0.0006"
    assert [("Claude", 1)] == [(plan["name"], plan["seats"]) for plan in found["plans"]]
    paid = await assistant.content("get_cost_data", cost_type="paid_cost", group_by=["charge"])
    by_charge = {row["group"]["charge"]: Fraction(row["cost"]) for row in paid["rows"]}
    assert by_charge.keys() >= {"seat_fee", "overage"}
    assert Fraction("0.00075") == by_charge["overage"]
    assert Fraction(paid["total"]["cost"]) == sum(by_charge.values())
    only = await assistant.content("get_cost_data", cost_type="paid_cost", filters={"charge": ["overage"]})
    assert only["total"]["cost"] == "0.00075"
    metered = await assistant.content("get_cost_data", cost_type="metered_cost")
    assert metered["total"]["cost"] == "0.0006"
