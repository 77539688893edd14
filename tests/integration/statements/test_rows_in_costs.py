"""
Whether rows of a billing connection count in costs: as configured, or by what is already counted of its provider.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from gateway.bills.billed.row_book import ConnectionCostUpdater, RowSources
from spool.identity import RecordIdentity
from spool.people import People
from spool.record import BILLING_DATA, HourlyBillingFile
from tests.integration.operations.money.costs.test_report import NOW
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, call(1, at=NOW.timestamp() - 9000, provider="openai"))
        await server.services.money.ledger.catch_up(server.services.money.log)
        yield server


async def made(server: OperatorServer, **given: Any) -> Any:
    body = {"name": str(given), "cloud_provider": "MongoDB", **given}
    answer = await server.ask("POST", "/connections", body)
    assert 201 == answer.status, answer.payload
    return answer.payload["connection"]


async def test_a_new_connection_is_in_costs_unless_it_would_count_twice(server: OperatorServer) -> None:
    """
    A new billing connection is in costs unless it would count twice. In this case it states the reason. An explicit
    choice overrides the default and can be changed.
    """
    plain = await made(server)
    assert plain["in_costs"] is True
    assert plain["in_costs_reason"] is None
    twice = await made(server, cloud_provider="OpenAI")
    assert not twice["in_costs"]
    assert "calls of OpenAI are already counted" in twice["in_costs_reason"]
    assert (await made(server, cloud_provider="OpenAI", in_costs=True))["in_costs"]
    assert not (await made(server, name="stated", in_costs=False))["in_costs"]
    path = f"/connections/{plain['connection_id']}"
    for wanted in (False, False, True):
        changed = await server.ask("PATCH", path, {"in_costs": wanted})
        assert wanted == changed.payload["connection"]["in_costs"]
    listed = (await server.ask("GET", "/connections")).payload["connections"]
    assert 2 == sum(each["in_costs"] for each in listed)
    await server.ask("DELETE", f"{path}?confirm={plain['connection_id']}")
    assert 1 == len(server.registry.connections_in_costs.all())


async def dropped(server: OperatorServer, connection: str, *days: str) -> None:
    """Add an hourly file with a row for each day."""
    rows = [
        {"time/usage_start": f"2026-09-{day}T03:00:00Z", "cost/cost": "3.5", "resource/service": "Atlas"}
        for day in days
    ]
    body = json.dumps({"data": rows}).encode()
    id = connection.encode().ljust(16, b"-")[:16]
    drop = HourlyBillingFile(id=id, body=body, connection_id=connection, month="2026-09", rows=len(rows))
    await add(server.services.spool.log, (drop, RecordIdentity(drop.id)), topic=BILLING_DATA)


async def test_rows_of_a_drop_are_in_reports(server: OperatorServer) -> None:
    """
    Rows of a drop appear in billed costs with their own dimensions, including rows of the current day. A query
    about calls has none of them.
    """
    connection = await made(server)
    services = server.services.money
    today = f"{NOW:%d}"
    await dropped(server, connection["connection_id"], "12", today)
    connections = services.billing_connections
    sources = RowSources(
        ledger=services.ledger,
        drops=connections.drops,
        connections=lambda: [
            each for each in server.registry.connections.all() if connections.is_in_costs(each.id)
        ],
        owner_tags=dict,
        people=lambda: People.for_installation(b"p"),
    )
    assert 2 == await ConnectionCostUpdater(sources, server.clock).recalculate_changed_months()
    recent = (await server.ask("GET", "/report?range=last_7d&by=service&cost_type=billed_cost")).payload
    assert "3.5" == recent["total"]["cost"]
    asked = "/report?from=2026-09-01&to=2026-09-20&by=service&by=origin"
    found = (await server.ask("GET", f"{asked}&cost_type=billed_cost")).payload
    assert [("Atlas", "billing", "3.5")] == [
        (row["service"], row["origin"], row["cost"]) for row in found["rows"] if row["cost"] != "0"
    ]
    assert {"no_owner": "3.5"} == found["billed"]["by_reason"]
    assert 400 == (await server.ask("GET", asked)).status
