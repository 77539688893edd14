"""
Costs as billed over HTTP: the bill's amounts, spread over the calls, with a statement of how final they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from spool.registry.operators import Actor
from spool.statements import DAY_S, Statement, StatementRow, day_start
from tests.integration.conftest import Serve
from tests.integration.operations.money.costs.test_published_costs import (
    DAY,
    SEPTEMBER,
    START_S,
    Reader,
    at,
    reader,
)
from tests.integration.payloads import json_span

FIRST = day_start(START_S)
BILL = (("input", "1.5"), ("output", "0.5"), ("discount", "-0.2"), ("web_search", "0.1"))


def line(kind: str, amount: str, currency: str = "USD") -> StatementRow:
    return StatementRow(
        source="openai_costs", provider="openai", account=None, key=None, start=FIRST, end=FIRST + DAY_S,
        model="gpt-4o" if kind in ("input", "output") else None, unit=currency.lower(), kind=kind,
        amount=Decimal(amount), currency=currency, tier=None, region=None, batch=None, settled=True,
    )  # fmt: skip


async def billed_reader(serve: Serve) -> Reader:
    """Import one day of a bill. Count calls on two days. One of the days has no bill."""
    read = await reader(serve, json_span("gpt-4o", **at(0)), json_span("gpt-4o", **at(24)))
    rows = (*(line(kind, amount) for kind, amount in BILL), line("input", "7", "EUR"))
    statement = Statement(
        source="openai_costs", account="", start=FIRST, end=FIRST + DAY_S, rows=rows, read_at=START_S, name="bill",
        settled_until=FIRST + DAY_S,
    )  # fmt: skip
    money = read.money
    await money.require_registry().statements.import_statement(
        statement, actor=Actor("ada@example.com", "command")
    )
    assert money.biller is not None
    assert 1 == await money.biller().recalculate_changed_months()
    return read


async def test_billed_money_by_day_and_charge(serve: Serve) -> None:
    """
    Billed costs grouped by day and by charge both add up to the bill. `billed` states what is final, missing,
    unassigned or in another currency.
    """
    read = await billed_reader(serve)
    payload = await read.costs(
        *SEPTEMBER, ("cost_type", "billed_cost"), ("group_by", "charge"), ("group_by", "basis")
    )
    assert [
        {"usage_date": DAY, "cost": "-0.2", "charge": "discount", "basis": "unallocated"},
        {"usage_date": DAY, "cost": "0.1", "charge": "other", "basis": "unallocated"},
        {"usage_date": DAY, "cost": "2", "charge": "usage", "basis": "value"},
    ] == payload["costs"]
    told = payload["billed"]
    assert told["through"] == "2026-09-21"
    assert told["days"] == {"closed": 1, "provisional": 0, "open": 22}
    assert told["unallocated"] == "0.1"
    assert told["by_reason"] == {"other": "0.1"}
    assert told["foreign"] == {"EUR": 1}
    assert [{"provider": "openai", "real_cost": "0.0006"}] == told["without_statement"]
    [source] = told["sources"]
    assert source["provider"] == "openai"
    assert source["source"] == "openai_costs"
    within = await read.costs(*SEPTEMBER, ("cost_type", "discounted_cost"), ("group_by", "model"))
    assert {"gpt-4o": "1.8", None: "0.1"} == {row["model"]: row["cost"] for row in within["costs"]}
    net = await read.costs(
        *SEPTEMBER, ("cost_type", "billed_cost"), ("filters", '{"!charge": ["discount", "other"]}')
    )
    assert ["2"] == [row["cost"] for row in net["costs"]]


async def test_counted_costs_do_not_change_because_of_a_bill(serve: Serve) -> None:
    """Counted costs do not change because of a bill, are all exact usage, and carry no `billed` key."""
    read = await billed_reader(serve)
    payload = await read.costs(*SEPTEMBER, ("group_by", "charge"), ("basis", "exact"))
    assert [("usage", "0.0006"), ("usage", "0.0006")] == [
        (row["charge"], row["cost"]) for row in payload["costs"]
    ]
    assert "billed" not in payload
    filled = (*SEPTEMBER, ("cost_type", "discounted_cost"), ("group_by", "basis"), ("missing", "counted"))
    payload = await read.costs(*filled, ("filters", '{"!basis": ["unallocated"]}'))
    assert [("shared", "-0.2"), ("value", "2"), ("counted", "0.0006")] == [
        (row["basis"], row["cost"]) for row in payload["costs"]
    ]
    assert "0.0006" == payload["billed"]["counted"]
    for asked in ((*filled[:-1], ("missing", "all")), (*SEPTEMBER, filled[-1])):
        refused = await read.costs(*asked, status=400)
        assert "missing" in refused["error"]["message"]


NOT_TOLD: Sequence[tuple[tuple[tuple[str, str], ...], str]] = [
    ((("granularity", "hourly"),), "per whole day in UTC"),
    ((("measures", "calls"),), "measures count calls"),
]


async def test_query_for_data_missing_from_bills_is_refused(serve: Serve) -> None:
    """A query for data that bills lack is refused. The error names what to query instead."""
    read = await billed_reader(serve)
    for query, words in NOT_TOLD:
        error = await read.costs(*SEPTEMBER, ("cost_type", "billed_cost"), *query, status=400)
        assert words in error["error"]["message"], (query, words)
