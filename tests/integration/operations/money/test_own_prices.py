"""The preview of a price, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.operations.money.own_prices import NewPrice, to_price_override
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, tzinfo=UTC).timestamp()
DAY = 86_400
PRICE = {"model": "acme-*", "input": "2", "output": "8"}


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, clock=MovedClock(NOW)) as server:
        unpriced = {"cost": None, "estimated_cost": None, "cost_source": "none"}
        tokens = {"input_tokens": 1_000_000, "output_tokens": 500_000}
        await add(
            server.services.spool.log,
            call(1, at=NOW - DAY, request_model="acme-1", **unpriced, **tokens),
            call(2, at=NOW - 2 * DAY, request_model="acme-2", **unpriced, **tokens),
            call(3, at=NOW - 3 * DAY, request_model="acme-1", cost="5", cost_source="reported", **tokens),
            call(4, at=NOW - 40 * DAY, request_model="acme-1", **unpriced, **tokens),  # too old
            call(5, at=NOW - DAY, request_model="other", **unpriced, **tokens),
        )
        yield server


async def test_the_preview_shows_calls_and_costs_before_and_after(server: OperatorServer) -> None:
    """The preview of a price shows calls and costs before and after. Reported costs stay, and nothing is stored."""
    shown = (await server.ask("POST", "/prices/preview", PRICE)).payload["preview"]
    assert shown["calls"] == 3
    assert shown["reported_calls"] == 1
    assert shown["unpriced_calls"] == 0
    assert float(shown["before"]) == 5
    assert float(shown["after"]) == 5 + 2 * (2 + 4)
    assert [] == (await server.ask("GET", "/prices")).payload["prices"]
    later = await server.ask("POST", "/prices/preview", {**PRICE, "since": "2026-10-01"})
    assert later.payload["preview"]["unpriced_calls"] == 2


async def test_a_price_of_a_tier_is_for_calls_of_this_tier(server: OperatorServer) -> None:
    """
    The preview of a price for a tier counts only calls of this tier. The stored price has the tier, and applies
    only to it.
    """
    batch = call(
        6, at=NOW - DAY, request_model="acme-1", tags={"processing": "batch"}, cost=None, estimated_cost=None,
        cost_source="none", input_tokens=1_000_000, output_tokens=500_000,
    )  # fmt: skip
    await add(server.services.spool.log, batch)
    for tier, calls, after in (("batch", 1, 6), ("standard", 3, 5 + 12), ("flex", 0, 0)):
        shown = (await server.ask("POST", "/prices/preview", {**PRICE, "tier": tier})).payload["preview"]
        assert (calls, after) == (shown["calls"], float(shown["after"]))
    stored = await server.ask("POST", "/prices", {**PRICE, "tier": "batch"})
    assert (201, "batch") == (stored.status, stored.payload["price"]["tier"])
    assert to_price_override(NewPrice(**{**PRICE, "tier": "batch"})).tier == "batch"


async def test_a_later_price_changes_no_call_at_night(server: OperatorServer) -> None:
    """
    The list before the new price has one price for day and one for night. A preview prices each call by its hour,
    not by the price of midnight.
    """
    tokens = {"input_tokens": 1_000_000, "output_tokens": 0}
    night = int(NOW) // DAY * DAY - DAY + 2 * 3600
    calls = [
        call(9 + hours, at=night + hours * 3600, provider="deepseek", request_model="deepseek-flash", cost=None,
             estimated_cost=cost, cost_source="estimated", **tokens)
        for hours, cost in ((0, "0.3"), (10, "0.15"))
    ]  # fmt: skip
    await add(server.services.spool.log, *calls)
    draft = {"model": "deepseek-*", "input": "2", "output": "8", "cache_read": "0", "since": "2026-10-01"}
    shown = (await server.ask("POST", "/prices/preview", draft)).payload["preview"]
    assert (2, 0, 0.45, 0.45) == (
        shown["calls"],
        shown["unpriced_calls"],
        float(shown["before"]),
        float(shown["after"]),
    )
    now = (await server.ask("POST", "/prices/preview", {**draft, "since": ""})).payload["preview"]
    assert float(now["after"]) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": " "}, "model must have"),
        ({"input": "", "output": ""}, "input or output is required"),
        ({"input": "-1"}, "input must"),
        ({"input": "1e99"}, "input must"),
        ({"since": "soon"}, "since must be a day"),
        ({"tier": "night"}, "tier must be one of standard, batch"),
    ],
)
async def test_what_is_wrong_is_named(server: OperatorServer, change: dict[str, str], message: str) -> None:
    for path in ("/prices", "/prices/preview"):
        answer = await server.ask("POST", path, {**PRICE, **change})
        assert answer.status == 400
        assert message in answer.error[2]
