"""Insights as people see them: money and operation are separate, and each insight has its severity."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from spool.listing import MOST_KNOWN
from spool.registry.insights import InsightDraft
from tests.integration.conftest import ACTOR
from tests.integration.operations.server import OperatorServer, operator_server


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as server:
        yield server


async def make(server: OperatorServer, category: str, cost_impact: str) -> None:
    draft = InsightDraft(title=category or "none", category=category, cost_impact=cost_impact)
    await server.registry.insights.create(draft, actor=ACTOR)


async def rows(server: OperatorServer, **asked: str) -> Any:
    answer = await server.ask("GET", "/insights", sort_key="cost_impact", sort_order="desc", **asked)
    return answer.payload["insights"]


async def titles(server: OperatorServer, **asked: str) -> list[str]:
    return [row["title"] for row in await rows(server, **asked)]


async def test_money_and_operation_are_apart(server: OperatorServer) -> None:
    """The spend behind a parked route is not a saving. A category that somebody invented counts as money."""
    for category, cost_impact in (
        ("delivery", "9504"),
        ("spend", "800"),
        ("their own", "20"),
        ("keys", "0"),
        ("", "1"),
    ):
        await make(server, category, cost_impact)
    assert ["spend", "their own", "none"] == await titles(server, about="money")
    assert ["delivery", "keys"] == await titles(server, about="operation")
    assert 5 == len(await titles(server))
    assert [] == await titles(server, about="money", status="addressed")
    assert [
        ("delivery", "operation", "critical"), ("spend", "money", "warning"), ("their own", "money", "info"),
        ("none", "money", "info"), ("keys", "operation", "info"),
    ] == [(row["title"], row["about"], row["severity"]) for row in await rows(server)]  # fmt: skip


async def test_filter_by_category_works_with_too_many_categories(server: OperatorServer) -> None:
    """With too many categories, the filter by money or operation still works, because each row carries it."""
    for number in range(MOST_KNOWN + 1):
        await make(server, f"own {number}", str(number))
    await make(server, "delivery", "1")
    assert ["delivery"] == await titles(server, about="operation")
    answer = await server.ask("GET", "/insights", about="money", limit="1")
    assert MOST_KNOWN + 1 == answer.payload["pagination"]["total_count"]


async def test_the_most_urgent_come_first(server: OperatorServer) -> None:
    """
    Without a sort order, the open insights are first, then the snoozed ones, each by severity and cost impact.
    Pages follow this order, and `counts` has the number of every state and subject.
    """
    made = [
        ("keys", "3", "new"), ("spend", "5", "in_progress"), ("delivery", "0", "addressed"), ("spend", "-7", "new"),
        ("delivery", "1", "on_hold"), ("delivery", "0.01", "new"), ("own", "4000000000", "ignored"),
        ("delivery", "0.02", "new"), ("own", "99.99", "new"),
    ]  # fmt: skip
    for category, cost_impact, status in made:
        draft = InsightDraft(title=cost_impact, category=category, cost_impact=cost_impact)
        await server.registry.insights.create(draft, status=status, actor=ACTOR)
    expected = ["0.02", "0.01", "5", "-7", "99.99", "3", "1", "0", "4000000000"]
    answer = await server.ask("GET", "/insights")
    assert expected == [row["title"] for row in answer.payload["insights"]]
    assert [{"sort_key": "severity", "sort_order": "desc"}] == answer.payload["sorting"]["current"]
    assert {"open": 6, "snoozed": 1, "done": 2, "money": 3, "operation": 3} == answer.payload["counts"]
    paged: list[str] = []
    page = await server.ask("GET", "/insights", limit="4")
    while True:
        paged += [row["title"] for row in page.payload["insights"]]
        cursor = page.payload["pagination"]["cursor"]
        if not cursor["has_next"]:
            break
        page = await server.ask("GET", "/insights", cursor=cursor["next_cursor"], limit="4")
    assert expected == paged
    assert ["0.02", "0.01", "1", "0"] == await titles_in_order(server, severity="critical")
    overview = (await server.ask("GET", "/overview")).payload["overview"]["insights"]
    assert expected[:5] == [row["title"] for row in overview["rows"]]
    assert 6 == overview["total_count"]


async def titles_in_order(server: OperatorServer, **asked: str) -> list[str]:
    answer = await server.ask("GET", "/insights", **asked)
    return [row["title"] for row in answer.payload["insights"]]
