"""Usage next to costs: measures with their units, and every published cost type."""

from __future__ import annotations

from tests.integration.conftest import Serve
from tests.integration.operations.money.costs.test_published_costs import DAY, SEPTEMBER, at, reader
from tests.integration.payloads import json_span

PUBLISHED = (
    "billed_cost", "discounted_cost", "amortized_cost", "discounted_amortized_cost", "real_cost", "on_demand_cost",
    "invoiced_amortized_cost", "usage_amount",
)  # fmt: skip


async def test_measures_are_returned_next_to_costs(serve: Serve) -> None:
    """Measures are whole numbers with their units. Rows of a query without measures do not change."""
    read = await reader(
        serve, json_span("gpt-4o", **at(0)), json_span("gpt-4o", **at(1)), json_span("o3", **at(2))
    )
    asked = [("measures", name) for name in ("calls", "errors", "input_tokens", "latency_ms")]
    payload = await read.costs(*SEPTEMBER, ("group_by", "model"), *asked)
    assert [
        {"usage_date": DAY, "cost": "0.0012", "model": "gpt-4o", "calls": 2, "errors": 0, "input_tokens": 240,
         "latency_ms": 2000},
        {"usage_date": DAY, "cost": "0.00048", "model": "o3", "calls": 1, "errors": 0, "input_tokens": 120,
         "latency_ms": 1000},
    ] == payload["costs"]  # fmt: skip
    units = {"cost": "USD", "calls": "calls", "errors": "calls", "input_tokens": "tokens", "latency_ms": "ms"}
    assert units == payload["units"]
    plain = await read.costs(*SEPTEMBER)
    assert "units" not in plain
    assert set(plain["costs"][0]) == {"usage_date", "cost"}


async def test_usage_is_an_amount_of_tokens(serve: Serve) -> None:
    """Token amounts have their own field name because they are not money, and sort as numbers."""
    spans = [json_span(model, **at(hour)) for hour, model in enumerate(["o3", *["gpt-4o"] * 9])]
    read = await reader(serve, *spans)
    usage = (*SEPTEMBER, ("cost_type", "usage_amount"), ("group_by", "model"))
    for key in ("usage_amount", "cost"):
        payload = await read.costs(*usage, ("sort_key", key), ("sort_order", "asc"))
        assert [
            {"usage_date": DAY, "usage_amount": "150", "model": "o3"},
            {"usage_date": DAY, "usage_amount": "1350", "model": "gpt-4o"},
        ] == payload["costs"]
        assert {"usage_amount": "tokens"} == payload["units"]


async def test_pages_continue_the_same_query(serve: Serve) -> None:
    read = await reader(serve, *(json_span("o3", **at(24 * day)) for day in range(2)))
    first = await read.costs(*SEPTEMBER, ("measures", "calls"), ("cost_type", "usage_amount"), ("limit", "1"))
    second = await read.costs(("cursor", first["pagination"]["cursor"]["next_cursor"]))
    assert [{"usage_date": "2026-09-22T00:00:00Z", "usage_amount": "150", "calls": 1}] == second["costs"]
    assert first["units"] == second["units"]


async def test_every_published_cost_type_is_answered(serve: Serve) -> None:
    """Tollhouse never returns another cost type in place of one that it cannot know."""
    read = await reader(serve, json_span("gpt-4o", **at(0)))
    amounts = {}
    for name in PUBLISHED:
        asked = (*SEPTEMBER, ("cost_type", name))
        if name in ("real_cost", "on_demand_cost", "usage_amount"):
            [row] = (await read.costs(*asked))["costs"]
            amounts[name] = row.get("cost", row.get("usage_amount"))
        else:  # without a provider bill there are no billed costs
            assert [] == (await read.costs(*asked))["costs"]
    assert {"real_cost": "0.0006", "on_demand_cost": "0.0006", "usage_amount": "150"} == amounts


async def test_an_unknown_measure_is_named(serve: Serve) -> None:
    """An unknown measure gets an error that lists the known measures."""
    error = (await (await reader(serve)).costs(*SEPTEMBER, ("measures", "joy"), status=400))["error"]
    assert "measures must be one of calls, errors" in error["message"]
