"""
The assistant of a limited person answers as if no other calls existed. Every tool and resource is tried.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.core.visibility import SLICED
from gateway.mcp.resources import VIEW_URI
from gateway.mcp.tools.list import TOOLS
from tests.integration.operations.people.test_limited_person import (
    FIELDS,
    FOREIGN,
    MARK,
    OWN,
    ROLES,
    ROOT,
    Place,
    World,
    fill,
    place,
    quick_beat,
)

__all__ = ["quick_beat"]  # a fixture for all tests in this file

DIMENSIONS = [*FIELDS, "User:Defined:Part"]
DATES = {"date_range": "last_30_days"}
# Arguments for each tool. They contain the names of both teams.
QUESTIONS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "get_dimension_values": [
        *({"dimension": name, **DATES} for name in DIMENSIONS),
        {"dimension": "team", "match": MARK},
    ],
    "get_cost_data": [
        *({"group_by": [name], **DATES} for name in DIMENSIONS),
        {"filters": {"team": [FOREIGN]}},
        {"filters": {"!team": [OWN]}, "group_by": ["user"]},
        {"filters": {"&team": [MARK[:3]]}},
        {"filters": {"team": [f"{FOREIGN[:-1]}"]}},
        {"view": f"{FOREIGN} view"},
        {"view": f"{OWN} view"},
        {"granularity": "daily", "measure": "cost_per_call"},
    ],
    "compare_costs": [{"group_by": [name]} for name in DIMENSIONS] + [{"view": f"{FOREIGN} view"}],
    "get_budgets": [{}, {"name": f"{FOREIGN} budget"}, {"name": f"{OWN} budget"}],
    "get_insights": [{"limit": 50}, {"category": "none"}],
    "get_optimize_recs": [{}, {"filters": {"team": [FOREIGN]}}, {"filters": {"team": [FOREIGN[:-1]]}}],
    "get_reference_info": [
        {"reference_type": word} for word in ("cost_types", "dimensions", "date_ranges", "changes")
    ],
}


async def answered(there: Place, method: str, **params: Any) -> str:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    answer = await there.server.over_http("POST", "/mcp", {"line": line}, headers=there.eva)
    assert 200 == answer.status, answer.payload
    return str(answer.payload["line"])


async def everything(there: Place) -> Mapping[str, str]:
    """Return the answer to each query of each tool, and to each list and resource."""
    return await answers(partial(answered, there), (there.foreign, there.own))


async def answers(ask: Callable[..., Awaitable[str]], worlds: Sequence[World]) -> Mapping[str, str]:
    """Return all answers of one assistant. `ask` takes a method and its parameters."""
    found = {
        method: await ask(method) for method in ("tools/list", "resources/list", "resources/templates/list")
    }
    for name in TOOLS:
        for asked in QUESTIONS.get(name, [{}]):
            question = f"{name} {asked}"
            found[question] = await ask("tools/call", name=name, arguments=asked)
    for resource in json.loads(found["resources/list"])["result"]["resources"]:
        found[resource["uri"]] = await ask("resources/read", uri=resource["uri"])
    for world in worlds:
        uri = f"{VIEW_URI}{world.ids['views']}"
        found[uri] = await ask("resources/read", uri=uri)
    return found


def content(line: str) -> Any:
    result = json.loads(line)["result"]
    assert not result["isError"], result
    return result["structuredContent"]


@pytest.mark.proves("An assistant shows calls that its user may not see")
async def test_what_is_hidden_changes_no_answer(tmp_path: Path) -> None:
    """
    After more calls, views, budgets, insights and savings of another team, every answer is the same to the
    last byte. It names that team only if the query did. `test_slices_of_assistants.py` has the other roles.
    """
    async with place(tmp_path, ROLES["is"]) as there:
        before = await everything(there)
        assert f"{OWN} view" in before["resources/list"] and f"{OWN} budget" in before["get_budgets {}"]
        await there.records_of(there.foreign)
        await fill(there.server, World(f"{FOREIGN}2"), 7)
        await there.server.services.money.ledger.catch_up(there.server.services.spool.log)
        after = await everything(there)
        for question, line in after.items():
            assert before[question] == line, question
            assert MARK not in line or MARK in question, (question, line)
        total = content(after[f"get_cost_data {QUESTIONS['get_cost_data'][0]}"])
        report = await there.server.over_http("GET", "/report?by=team&range=last_30d", headers=there.eva)
        assert total["total"]["cost"] == report.payload["total"]["cost"]
        assert total["total"]["calls"] == report.payload["total"]["calls"]


async def test_tools_that_are_not_cut_are_closed(tmp_path: Path) -> None:
    """
    Tools that cannot be limited are not listed. A call names the missing right and does not request a new sign-in.
    """
    async with place(tmp_path, ROLES["is"]) as there:
        listed = json.loads(await answered(there, "tools/list"))["result"]["tools"]
        assert [name for name, tool in TOOLS.items() if tool.shows == SLICED] == [
            each["name"] for each in listed
        ]
        for name, tool in TOOLS.items():
            if tool.shows != SLICED and not tool.writes:
                result = json.loads(await answered(there, "tools/call", name=name))["result"]
                assert result["isError"] and "full data access" in result["content"][0]["text"], name


async def test_notes_on_the_organization_are_of_all_calls(tmp_path: Path) -> None:
    """Notes and insights that people wrote may be about any call, so limited people do not see them."""
    async with place(tmp_path, ROLES["is"]) as there:
        await there.server.registry.org_context.set_text(f"{FOREIGN} pays", actor=ROOT)
        found = content(await answered(there, "tools/call", name="get_org_context", arguments={}))
        assert found["org_context"] is None
