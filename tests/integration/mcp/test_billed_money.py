"""Billed costs as assistants query them: exact, with the state of each day, and without call counts."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

from spool.registry.operators import Actor
from spool.statements import DAY_S, Statement, StatementRow, day_start
from tests.integration.mcp.conftest import Assistant


async def filtered(assistant: Assistant, asked: dict[str, Any]) -> None:
    """
    Check filters on dimensions that only bills have: values, partial values and unknown. A wrong value
    returns the nearest valid one.
    """
    for filters, total in (
        ({"charge": ["usage"], "model": ["o3"]}, "1.5"),
        ({"!charge": ["usage"]}, "0"),
        ({"&basis": ["ALU"], "!&model": ["gpt"]}, "1.5"),
        ({"service": [None]}, "1.75"),
    ):
        found = await assistant.content("get_cost_data", **asked, filters=filters)
        assert total == found["total"]["cost"], filters
    compared = await assistant.content("compare_costs", **asked, filters={"charge": ["usage"]})
    assert "1.75" == compared["total"]["cost"]
    for tool in ("get_cost_data", "compare_costs"):
        wrong = await assistant.mistake(tool, **asked, filters={"charge": ["usages"]})
        assert (
            "no billed costs in this time have the charge usages" in wrong and "did you mean usage" in wrong
        ), wrong
    counted = {**asked, "cost_type": "real_cost"}
    assert "no dimension charge" in await assistant.mistake(
        "get_cost_data", **counted, filters={"charge": ["usage"]}
    )
    values = await assistant.content("get_dimension_values", dimension="charge", date_range="last_7_days")
    assert [("usage", "1.75")] == [(each["value"], each["cost"]) for each in values["values"]]


async def test_billed_money_of_two_models(assistant: Assistant) -> None:
    """
    Each model has its billed amount, also by dimensions that only bills have. A query that divides a day or
    wants call counts is refused with an explanation.
    """
    await assistant.calls("gpt-4o", "o3", days_ago=2)
    day = day_start(int(time.time()) - 2 * DAY_S)
    rows = tuple(
        StatementRow(
            source="openai_costs", provider="openai", account=None, key=None, model=model, start=day, end=day + DAY_S,
            unit="usd", kind="cost", amount=Decimal(amount), currency="USD", tier=None, region=None, batch=None,
            settled=True,
        )
        for model, amount in (("gpt-4o", "0.25"), ("o3", "1.5"))
    )  # fmt: skip
    statement = Statement(
        source="openai_costs", account="", start=day, end=day + DAY_S, rows=rows, read_at=day, name="bill",
        settled_until=day + DAY_S,
    )  # fmt: skip
    money = assistant.serving.app.services.operators.money
    await money.require_registry().statements.import_statement(
        statement, actor=Actor("ada@example.com", "command")
    )
    assert money.biller is not None
    assert 1 == await money.biller().recalculate_changed_months()
    asked = {"cost_type": "billed_cost", "group_by": ["model"], "date_range": "last_7_days"}
    found = await assistant.content("get_cost_data", **asked)
    assert {"gpt-4o": "0.25", "o3": "1.5"} == {line["group"]["model"]: line["cost"] for line in found["rows"]}
    assert found["total"]["cost"] == "1.75"
    assert any("1 closed" in note for note in found["notes"])
    by_charge = await assistant.content("get_cost_data", **{**asked, "group_by": ["charge", "model"]})
    lines = {tuple(line["group"].values()): line["cost"] for line in by_charge["rows"]}
    assert {("usage", "gpt-4o"): "0.25", ("usage", "o3"): "1.5"} == lines
    assert "no dimension charge" in await assistant.mistake("get_cost_data", group_by=["charge"])
    await filtered(assistant, asked)
    assert "has only costs" in await assistant.mistake("get_cost_data", **asked, measure="calls")
    filled = await assistant.content("get_cost_data", **{**asked, "group_by": ["basis"]}, missing="counted")
    # the bills cover every call, so no row is counted
    assert {"value"} == {line["group"]["basis"] for line in filled["rows"]}
    assert any("on days without a bill" in note for note in filled["notes"])
    assert "missing applies only to billed costs" in await assistant.mistake(
        "get_cost_data", missing="counted"
    )
    assert "per whole day in UTC" in await assistant.mistake("get_cost_data", **asked, granularity="hourly")
