"""
An assistant over HTTP shows exactly what the console shows the same person: every tool, prompt and resource,
for every kind of role.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.core.paths import socket_path
from spool.registry.operators import Person
from spool.registry.roles import IS, RoleFilter
from tests.integration.conftest import Serve
from tests.integration.mcp.people import Door, open_door
from tests.integration.operations.people.test_limited_assistant import answers, content
from tests.integration.operations.people.test_limited_person import (
    EVA,
    FOREIGN,
    MARK,
    OWN,
    ROLES,
    World,
    calls,
    prepare,
    quick_beat,
)
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer
from tests.rounds import part
from tests.spool.contract.examples import add, call

__all__ = ["quick_beat"]  # a fixture for all tests in this file

THIRD = "chat"
UNKNOWN = RoleFilter(dimension="team", values=("",), mode=IS)
ALSO = RoleFilter(dimension="team", values=(THIRD,), mode=IS)
# For each kind of role: the filters of each role, and the cost of the matching calls. A call that belongs to
# a team costs 3. A call without a team costs 5.
SLICES: Mapping[str, tuple[Sequence[Sequence[RoleFilter]], str]] = {
    "is": ([[ROLES["is"]]], "3"),
    "except": ([[ROLES["except"]]], "11"),
    "own dimension": ([[ROLES["own dimension"]]], "3"),
    "unknown": ([[UNKNOWN]], "5"),
    "union": ([[ROLES["is"]], [ALSO]], "6"),
    "both at once": ([[ROLES["is"], UNKNOWN]], "0"),
}


@dataclass
class Site:
    """One installation, with an assistant and a browser of the same person."""

    door: Door
    server: OperatorServer
    worlds: tuple[World, World]
    token: str
    browser: dict[str, str]

    async def over_token(self, method: str, **params: Any) -> str:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.door.post(body, self.token)
        assert 200 == answer.status, answer.body
        return answer.body.decode()

    async def over_console(self, method: str, **params: Any) -> str:
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        answer = await self.server.over_http("POST", "/mcp", {"line": line}, headers=self.browser)
        assert 200 == answer.status, answer.payload
        return str(answer.payload["line"])

    async def more_of(self, world: World, number: int) -> None:
        await add(self.server.services.spool.log, *calls(world, self.door.clock.now(), number))
        await self.server.services.money.ledger.catch_up(self.server.services.spool.log)


@asynccontextmanager
async def site(serve: Serve, place: Path, roles: Sequence[Sequence[RoleFilter]]) -> AsyncIterator[Site]:
    unlimited = {"calls_per_minute": 1_000_000}
    async with open_door(serve, place, mcp=unlimited) as door:
        app = door.serving.app
        operators = app.services.operators
        socket = socket_path(app.config.data_dir)
        server = OperatorServer(operators, app.services.storage, door.clock, app.url, socket)
        worlds = await prepare(server, roles, THIRD)
        log = operators.spool.log
        await add(log, call(90, at=door.clock.now() - 60, user="nobody", cost="5", cost_source="reported"))
        await operators.money.ledger.catch_up(log)
        browser = await signed_in(server, "none", EVA)
        known = Person(email=EVA, role="none", decides_role=False, issuer=door.provider.url, subject="eva")
        await door.registry.operators.add_person(known, address="", takes_over_accounts=True)
        token = door.provider.access_token(sub="eva", email=EVA)
        yield Site(door, server, worlds, token, browser)


def less_cursors(line: str) -> Any:
    """Return an answer without cursors, which are valid for only one reader."""
    found = json.loads(line)
    inner = found.get("result", {}).get("structuredContent")
    if isinstance(inner, dict):
        inner.pop("next_cursor", None)
    return found


@pytest.mark.proof
@pytest.mark.parametrize("kind", part([*SLICES], every=6))
async def test_a_token_answers_as_the_console(serve: Serve, tmp_path: Path, kind: str) -> None:
    """
    A person's assistant gets the same rows, totals, lists, links and refusals as the person in the console, and
    they add up to the calls of the role. New calls of others in between change nothing. An answer names another
    team only if the query did.
    """
    roles, cost = SLICES[kind]
    async with site(serve, tmp_path, roles) as there:
        found = await answers(there.over_token, there.worlds)
        for number in (100, 101):
            await there.more_of(there.worlds[1], number)
        shown = await answers(there.over_console, there.worlds)
        assert list(shown) == list(found)
        for question, line in found.items():
            assert less_cursors(shown[question]) == less_cursors(line), question
            assert MARK not in line or MARK in question, (question, line)
            if kind == "unknown":
                assert f'"{OWN}"' not in line or OWN in question, (question, line)
        total = content(await there.over_token("tools/call", name="get_cost_data", arguments={}))["total"]
        assert Decimal(cost) == Decimal(total["cost"])
        report = await there.server.over_http("GET", "/report?by=team&range=last_30d", headers=there.browser)
        assert (total["cost"], total["calls"]) == tuple(
            report.payload["total"][name] for name in ("cost", "calls")
        )
        if kind == "is":  # for this role, the answers are compared to the last byte, including cursors
            assert found == await answers(there.over_token, there.worlds)


async def test_lost_role_hides_its_calls_from_the_same_token(serve: Serve, tmp_path: Path) -> None:
    """If a person loses a role, the next query with the same token shows only the calls of the other role."""
    roles, cost = SLICES["union"]
    async with site(serve, tmp_path, roles) as there:
        asked = {"name": "get_cost_data", "arguments": {"group_by": ["team"]}}
        before = content(await there.over_token("tools/call", **asked))
        assert {OWN, THIRD} == {row["group"]["team"] for row in before["rows"]}
        [first] = [role for role in there.door.registry.roles.all() if role.name == "Part 0"]
        changed = await there.server.ask("PATCH", f"/roles/{first.id}", {"members": []})
        assert 200 == changed.status, changed.payload
        after = content(await there.over_token("tools/call", **asked))
        assert [THIRD] == [row["group"]["team"] for row in after["rows"]]
        assert Decimal(cost) / 2 == Decimal(after["total"]["cost"])
        assert FOREIGN not in json.dumps(after)
