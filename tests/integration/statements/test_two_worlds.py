"""
Other teams' bills change no answer to a limited person. This covers every operation with a cost type: in the
console, as CSV, in scheduled reports and for assistants, answered or refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.core.paths import OPERATOR_API
from gateway.mcp.tools.list import TOOLS
from spool.ledger.billed import CONNECTION, CORRECTS, EVERY, BilledDay
from spool.ledger.dimensions import BILLED_TYPES
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, USE_ASSISTANTS, VIEW_COSTS
from spool.registry.roles import EXCEPT, IS, LIMITED, NewRole, RoleFilter, RoleLimits
from tests.integration.operations.money.costs.test_report import NOW
from tests.integration.operations.people.test_limited_person import EVA, ROOT
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.integration.statements.test_billed_report import TODAY, billed_sum, keep_bill
from tests.moved_clock import MovedClock

DAY_S = 86400
DAYS = {"start": "2026-09-14", "end": "2026-09-20"}
SPAN = "from=2026-09-14&to=2026-09-20"
GROUPINGS = ("", "team", "model", "team&top=1")
OF_OTHERS = (
    billed_sum("ads", "usage", EVERY, 50), billed_sum("tuning", "usage", EVERY, 2), billed_sum("", "credit", EVERY, -7),
    billed_sum("", "usage", EVERY, 11), billed_sum("ads", "commitment", EVERY, 3),
)  # fmt: skip


async def other_bills(server: OperatorServer) -> None:
    """Store an entry for a closed month and rows of a connection, both of other teams."""
    ledger = server.services.money.ledger
    for key in (f"openai{CORRECTS}2026-08-03", f"MongoDB{CONNECTION}c-1:2026-09"):
        day = BilledDay(
            day=TODAY - 2 * DAY_S, provider=key, state="closed", mark="1", source="openai_costs", read_at=1.0,
            made_at=1.0,
        )  # fmt: skip
        charge = "restated" if CORRECTS in key else "usage"
        await ledger.store_billed_days(
            [(day, [billed_sum("ads", charge, EVERY, 5), billed_sum("", charge, EVERY, 6)])]
        )


async def csv_of(server: OperatorServer, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(f"{server.url}{OPERATOR_API}{path}&format=csv", headers=headers) as response,
    ):
        return response.status, await response.text()


def tool_questions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the arguments for each tool, and cost queries with every grouping of a bill."""
    yield from ((name, {}) for name in TOOLS)
    for cost_type in BILLED_TYPES:
        asked = {"cost_type": cost_type, "date_range": DAYS}
        yield "compare_costs", {**asked, "group_by": ["team"]}
        yield "compare_costs", {**asked, "group_by": ["charge"]}
        yield "get_cost_data", {**asked, "group_by": ["team"], "granularity": "daily"}
        yield "get_cost_data", {**asked, "filters": {"!team": ["search"]}}
        for by in ([], ["model"], ["charge", "basis"], ["corrects", "origin", "service"]):
            yield "get_cost_data", {**asked, "group_by": by}


async def tool_answers(server: OperatorServer, headers: Mapping[str, str]) -> list[Any]:
    """Return the answers of all tools to the person's assistant."""
    found: list[Any] = []
    for name, asked in tool_questions():
        params = {"name": name, "arguments": asked}
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        answer = await server.over_http("POST", "/mcp", {"line": line}, headers=headers)
        assert 200 == answer.status, answer.payload
        found.append((name, str(asked), answer.status, answer.payload["line"]))
    return found


async def answers(server: OperatorServer, role: RoleFilter) -> list[Any]:
    """Return all answers to a person with this role."""
    draft = NewRole(
        name="Part", data_access=LIMITED, filters=(role,), members=(EVA,),
        permission_sets=(VIEW_COSTS, MODIFY_VIEWS_AND_BUDGETS, USE_ASSISTANTS),
    )  # fmt: skip
    known = server.services.money.ledger.dimensions()
    notices = server.registry.notices
    notices.channels, notices.report_channels = ("ops",), frozenset(("ops",))
    await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
    eva = await signed_in(server, "none", EVA)
    found: list[Any] = []

    async def ask(method: str, path: str, body: object = None, *, name: str = "") -> Any:
        answer = await server.over_http(method, path, body, headers=eva)
        payload = answer.payload if answer.payload is not None else answer.headers.get("Content-Length")
        found.append((method, name or path, answer.status, _without_ids(payload)))
        return answer.payload

    for cost_type in BILLED_TYPES:
        asked = f"{SPAN}&cost_type={cost_type}"
        for by in (
            "",
            "team",
            "charge,basis",
            "model",
            "corrects,origin",
            "service",
            "team&top=1",
            "team&compare=previous",
        ):
            await ask("GET", f"/report?{asked}&by={by}")
        await ask("GET", f"/report?{asked}&by=team&per=daily&where=basis!=shared")
        for by in (*GROUPINGS, "charge", "origin"):
            await ask("GET", f"/comparison?{asked}&by={by}&against=previous")
        view = {
            "name": cost_type,
            "filter": {"team": ["search"]},
            "principal_dimension": "model",
            "cost_type": cost_type,
        }
        await ask("POST", "/views", view)
        await ask("GET", f"/report?{SPAN}&view={cost_type}&cost_type={cost_type}")
        seen = [each for each in server.registry.views.all() if each.name == cost_type]
        budget = {
            "name": cost_type,
            "view": {"id": seen[0].id},
            "default_amount": "5",
            "cost_type": cost_type,
        }
        await ask("POST", "/budgets", budget)
        await scheduled(server, cost_type, seen[0].id, ask)
        for by in ("team", "charge", "team&top=1", "team&compare=previous"):
            path = f"/report?{asked}&by={by}"
            found.append(("CSV", path, *await csv_of(server, path, eva)))
    found += await tool_answers(server, eva)
    await ask("GET", "/budgets?expand=current")
    for path in ("/forecast", "/what-if"):
        await ask("GET", f"{path}?cost_type=billed_cost&where=team=search")
    for path in ("/month-closing?provider=openai&month=2026-08", "/closed-months", "/billed-invoices"):
        await ask("GET", path)
    return found


async def scheduled(server: OperatorServer, name: str, view: str, ask: Callable[..., Awaitable[Any]]) -> None:
    """Create a scheduled report of a view and preview it."""
    report = {"name": name, "view": view, "channels": ["ops"]}
    made = await ask("POST", "/scheduled-reports", report)
    id = made["scheduled_report"]["id"]
    # The name stands for the address, because ids differ between the two installations.
    await ask("GET", f"/scheduled-reports/{id}/preview", name=f"preview {name}")


def _without_ids(payload: Any) -> Any:
    """Return an answer without values that differ in each installation."""
    if isinstance(payload, dict):
        left_out = ("id", "version", "created", "last_updated", "next_cursor")
        return {name: _without_ids(value) for name, value in payload.items() if name not in left_out}
    if isinstance(payload, str):  # links to views contain ids, which differ between the installations
        return re.sub(r"\b[0-9a-f]{32}\b", "ID", payload)
    return [_without_ids(each) for each in payload] if isinstance(payload, list) else payload


@pytest.mark.proves("bills of others change no answer for people with restricted access")
@pytest.mark.parametrize(
    "role",
    [
        pytest.param(RoleFilter(dimension="team", values=("search",), mode=IS), id="is"),
        pytest.param(
            RoleFilter(dimension="team", values=("ads",), mode=EXCEPT), id="except", marks=pytest.mark.proof
        ),
    ],
)
async def test_what_others_are_billed_changes_no_answer(tmp_path: Path, role: RoleFilter) -> None:
    """Two installations differ only in other teams' bills. No answer shows a difference."""
    told = []
    others = (
        OF_OTHERS
        if role.mode == IS
        else tuple(each for each in OF_OTHERS if each.dimensions.team != "tuning")
    )
    for name in ("alone", "with others"):
        directory = tmp_path / name
        directory.mkdir()
        async with operator_server(directory, clock=MovedClock(NOW.timestamp())) as server:
            await keep_bill(server, *(others if name == "with others" else ()))
            if name == "with others":
                await other_bills(server)
            whole = await server.ask("GET", f"/report?{SPAN}&cost_type=billed_cost")
            told.append((await answers(server, role), whole.payload["total"]["cost"]))
    (before, whole_before), (after, whole_after) = told
    assert whole_before != whole_after
    for old, new in zip(before, after, strict=True):
        assert old == new
    answered = [each for each in before if each[2] == 200]
    assert len(answered) > 160
    tools = [
        json.loads(each[3])["result"] for each in answered if each[0] in ("get_cost_data", "compare_costs")
    ]
    assert 42 == sum(not each["isError"] for each in tools)
    assert 15 == sum(each[0] == "CSV" and "search" in each[3] for each in answered)
    assert 5 == sum("o3: $" in str(each[3]) for each in answered if each[1].startswith("preview "))
    text = json.dumps(answered)
    assert '"ads"' not in text.replace('"!team": ["ads"]', "")
    assert '"tuning"' not in text
    by_path = {each[1]: each for each in before}
    assert 403 == by_path["/month-closing?provider=openai&month=2026-08"][2]
    assert {403} == {each[2] for each in before if (each[0], each[1]) == ("POST", "/budgets")}
    total = by_path[f"/report?{SPAN}&cost_type=discounted_cost&by="][3]["total"]["cost"]
    assert "3" == total
