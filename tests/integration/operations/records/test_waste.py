"""The waste of a session over HTTP: its calls as they are stored, with the rights of the list of calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from gateway.money.waste.judging import NO_COUNTS
from spool import identity
from spool.identity import RecordIdentity
from spool.record import Inference
from spool.registry.operators import Actor
from spool.registry.roles import LIMITED, NewRole, RoleFilter, RoleLimits
from tests.gateway.money.waste.examples import START, call
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add

MAIN = {
    "tags": {"query_source": "repl_main_thread"},
    "cache_write_1h_tokens": 0,
    "user": "eva",
    "session": "talk",
}
TITLE = {**MAIN, "tags": {"query_source": "title"}}


def stored(number: int, made: Inference) -> tuple[Inference, RecordIdentity]:
    known_as = identity.call_identity(made, response_id=f"msg_{number:032d}")
    made.id = known_as.id
    return made, known_as


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    """
    Store a session that breaks at its third call and pauses before its fourth, with a title between them, a call of
    another session of the same source, and one of another person.
    """
    calls = [
        call(0, 20_010, 0, 20_000, **MAIN),
        call(65, 24_510, 20_000, 4_500, **MAIN),
        call(90, 2_000, 0, 0, **TITLE),
        call(130, 30_000, 8_000, 22_000, **MAIN),
        call(1335, 31_000, 0, 31_000, **MAIN),
        call(200, 9_000, 0, 9_000, **{**MAIN, "session": "other"}),
        call(210, 9_000, 0, 9_000, **{**MAIN, "session": "hers", "user": "ann"}),
    ]
    async with operator_server(tmp_path, clock=MovedClock(START + 9_000.0)) as server:
        await add(server.services.spool.log, *(stored(number, made) for number, made in enumerate(calls)))
        yield server


async def waste(
    server: OperatorServer, session: str = "talk", status: int = 200, headers: Mapping[str, str] = {}
) -> Any:
    path = f"/work/session/{session}/waste?range=last_7d"
    answer = await (
        server.over_http("GET", path, headers=dict(headers)) if headers else server.ask("GET", path)
    )
    assert answer.status == status, answer.payload
    return answer.payload


async def test_each_call_is_divided_exactly(server: OperatorServer) -> None:
    found = await waste(server)
    assert found["waste"]["amounts"] == {"break": "0.056925", "pause": "0.1035"}
    assert [call["lane"] for call in found["calls"]] == 4 * ["claude_code repl_main_thread"] + [
        "claude_code title"
    ]
    for row in [found["waste"], *found["calls"]]:
        amounts = row.get("amounts") or {part["kind"]: part["amount"] for part in row["parts"]}
        parts = [row["useful"], row["not_judged"], *amounts.values()]
        assert Decimal(row["cost"]) == sum(map(Decimal, parts))
    [part] = found["calls"][2]["parts"]
    assert part == {
        "kind": "break", "group": "avoidable", "tokens": 16_500, "amount": "0.056925",
        "formula": "24,500 cached tokens were alive, 8,000 were read",
    }  # fmt: skip
    digest = found["waste"]["session"]
    assert await waste(server, digest) == found
    assert "choose another period" in str(await waste(server, "nobody", status=404))


async def test_a_late_report_is_judged_as_the_correction_has_it(server: OperatorServer) -> None:
    """A repeated report changes nothing. Later counts of a closed call do, as the list of records shows them."""
    before = await waste(server)
    await add(server.services.spool.log, stored(1, call(65, 24_510, 20_000, 4_500, **MAIN)))
    assert (await waste(server))["waste"] == before["waste"]
    late = stored(60, call(400, 31_000, None, None, **{**MAIN, "session": "late", "output_tokens": None}))
    await add(server.services.spool.log, late)
    assert (await waste(server, "late"))["calls"][0]["reason"] == NO_COUNTS
    again = stored(60, call(400, 31_000, 1_000, 30_000, **{**MAIN, "session": "late"}))
    await add(server.services.spool.log, again)
    [found] = (await waste(server, "late"))["calls"]
    assert ([part["kind"] for part in found["parts"]], found["reason"]) == (["unread"], None)


async def test_the_command_shows_each_call(server: OperatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")

    async def run(*words: str) -> str:
        data = ("--data", str(server.socket.parent))
        return (await asyncio.to_thread(CliRunner().invoke, main, [*words, *data])).output

    shown = await run("work", "show", "session", "talk", "--waste")
    assert "break 0.056925" in shown
    assert "break 0.056925, pause 0.1035, not judged 0" in shown.splitlines()[-1]
    assert "no stored call of this session" in await run("work", "show", "session", "nobody", "--waste")
    assert "--waste needs a session" in await run("work", "show", "run", "talk", "--waste")
    broken = next(call for call in (await waste(server))["calls"] if call["parts"])
    explained = json.loads(await run("explain", "--record", broken["id"]))
    assert explained["waste"] == broken


async def test_another_session_that_read_decides_only_what_is_unread(server: OperatorServer) -> None:
    alone = (await waste(server, "other"))["waste"]
    assert alone["amounts"] == {"unread": "0.00675"}
    reader = call(230, 9_000, 9_000, 0, **{**MAIN, "session": "third"})
    await add(server.services.spool.log, stored(50, reader))
    assert (await waste(server, "other"))["waste"]["amounts"] == {}


async def test_people_judge_only_calls_that_they_may_see(server: OperatorServer) -> None:
    """Nobody learns from the reads of others, so what a person's call wrote is not judged."""
    filters = (RoleFilter(dimension="user", values=("eva",)),)
    draft = NewRole(
        name="Own calls",
        data_access=LIMITED,
        filters=filters,
        permission_sets=("view_records",),
        members=(ADA,),
    )
    known = server.services.money.ledger.dimensions()
    await server.registry.roles.create(
        draft, known_dimensions=known, limits=RoleLimits(), actor=Actor("root", "local")
    )
    headers = await signed_in(server, "none", ADA)
    hidden, absent = [await waste(server, name, status=404, headers=headers) for name in ("hers", "nobody")]
    assert hidden == absent
    seen = (await waste(server, "other", headers=headers))["waste"]
    assert (seen["amounts"], seen["not_judged"]) == ({}, "0.00675")
    assert (await waste(server, headers=headers))["waste"]["amounts"] == {
        "break": "0.056925",
        "pause": "0.1035",
    }


async def test_a_wrong_range_is_refused(server: OperatorServer) -> None:
    for query in ("range=never", "from=x", "range=last_7d&from=2026-11-01", "other=1"):
        answer = await server.ask("GET", f"/work/session/talk/waste?{query}")
        assert answer.status == 400, query
