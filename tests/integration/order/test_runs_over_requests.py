"""
Spans of agents that arrive in several requests, in any order and with restarts in between: each call gets the same
runs as if all spans had arrived in one request.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.people.authentication.bearer import AuthenticatedKey
from spool.log.pending_spans import LONGEST_GIVEN
from spool.record import Correction, Inference, Record
from tests.clients.capture import PLACE, read
from tests.gateway.normalise.otlp.items import SECOND
from tests.gateway.normalise.otlp.payloads import attribute, in_protobuf, span, traces
from tests.integration.order.dealt.shared_gateways import SharedGateways
from tests.integration.order.running import SEED, Gateway, Request, Row, told_in_memory, told_on_disk
from tests.rounds import IS_LONG, part
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import NOON
from tests.spool.ledger.engines import POSTGRES, schemas_of

ORDERS = 10 if IS_LONG else 1
CAPTURES = {
    "copilot_cli_agents": "delegation",
    "genai_openai_agents": "tools",
    "openai_agents": "tools",
    "strands": "tools",
}
AGENT = {"gen_ai.operation.name": "invoke_agent"}
TOOL = {"gen_ai.operation.name": "execute_tool"}
WORKFLOW = {"gen_ai.operation.name": "invoke_workflow"}
HTTP = {"http.request.method": "POST"}


def chat(number: int, parent: int, **more: str) -> dict[str, Any]:
    answered = {"gen_ai.response.id": f"chatcmpl-{number:024}", "gen_ai.usage.input_tokens": number}
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "toll-1"}
    return made(number, {**model, **answered, **more}, parent)


def made(number: int, attributes: dict[str, Any], parent: int | None = None) -> dict[str, Any]:
    start = NOON * SECOND + number * SECOND
    return span(number, attributes, parent=parent, start=start, end=start + SECOND)


# An agent that calls the model starts an agent without calls, which starts another one, over tools and HTTP.
NESTED = [
    made(1, HTTP),
    made(2, AGENT, 1),
    chat(3, 2),
    made(4, TOOL, 2),
    made(5, HTTP, 4),
    made(6, AGENT, 5),
    made(7, AGENT, 6),
    made(8, TOOL, 7),
    made(9, AGENT, 8),
    chat(10, 9),
    chat(11, 9),
    chat(12, 2),
]


def of_nested() -> list[bytes]:
    return [in_protobuf(traces(each)) for each in NESTED]


def of_capture(family: str, run: str) -> list[bytes]:
    """Return the spans of a capture, each in a request of its own."""
    requests = []
    for sent in read(PLACE / family / f"{run}.jsonl.gz").requests:
        if not sent.path.endswith("/v1/traces"):
            continue
        body = in_protobuf(json.loads(sent.body)) if sent.body.startswith(b"{") else sent.body
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                for each in scope.spans:
                    request = ExportTraceServiceRequest()
                    of_resource = request.resource_spans.add(resource=resource.resource)
                    of_resource.scope_spans.add(scope=scope.scope, spans=[each])
                    requests.append(request.SerializeToString())
    return requests


def spans_of(name: str) -> list[bytes]:
    return of_nested() if name == "nested" else of_capture(name, CAPTURES[name])


def runs_in(rows: Iterable[Row]) -> tuple[dict[str, str | None], set[tuple[str, str]]]:
    """Return the run of each call, and the edges of the tree of runs."""
    runs: dict[str, str | None] = {}
    edges = set[tuple[str, str]]()
    for row in sorted(rows, key=lambda row: row["kind"] == "correction"):
        if row["kind"] == "inference" and not row["shadow"]:
            runs[row["id"]] = row.get("run")
        elif row["kind"] == "correction" and row.get("run") is not None:
            runs[row["corrects"]] = row["run"]
        above = [row.get("run"), row.get("parent_run"), *(row.get("ancestors") or "").split()]
        edges |= {(below, parent) for below, parent in pairwise(above) if below and parent}
    return runs, edges


def requests_of(bodies: Sequence[bytes]) -> list[Request]:
    return [Request("otlp/traces", body) for body in bodies]


def orders(spans: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Orders of requests in which spans arrive: children first, parents first, and at random."""
    chance = random.Random(SEED)
    return [spans, spans[::-1], *(chance.sample(spans, len(spans)) for _ in range(ORDERS))]


def expected_of(spans: Sequence[bytes]) -> tuple[dict[str, str | None], set[tuple[str, str]]]:
    """Return the runs if all spans arrive in one request."""
    rows, _ = told_in_memory(requests_of([b"".join(spans)]))
    return runs_in(rows)


def assert_same_runs(rows: Sequence[Row], spans: Sequence[bytes]) -> None:
    expected, edges = expected_of(spans)
    runs, found = runs_in(rows)
    assert any(expected.values())
    assert expected == {call: runs[call] for call in expected}
    assert edges == found


@pytest.mark.parametrize("pause", part([0.0, 5.0, 60.0], every=2), ids=["at once", "open", "closed"])
@pytest.mark.parametrize("name", ["nested", *CAPTURES])
def test_runs_do_not_depend_on_requests(name: str, pause: float) -> None:
    spans = spans_of(name)
    for order in orders(spans):
        rows, _ = told_in_memory(requests_of(order), [pause])
        assert_same_runs(rows, spans)


@pytest.mark.parametrize("name", part(["nested", "copilot_cli_agents"], every=2))
def test_runs_survive_restarts(name: str) -> None:
    spans = spans_of(name)
    for order in orders(spans):
        rows, _ = told_on_disk(requests_of(order), [True], [5.0])
        assert_same_runs(rows, spans)


# Spans give users, sessions, a team, names of agents and a branch to the calls below them. The nearest one counts. Some
# instrumentations state one name of an agent in all calls.
SAME_NAME = {"gen_ai.agent.name": "OpenAI Agent"}
GIVING = [
    made(1, WORKFLOW | {"user.id": "ann", "session.id": "outer", "vcs.ref.head.name": "main"}),
    made(2, AGENT | {"gen_ai.agent.name": "planner", "team.id": "search"}, 1),
    chat(3, 2, **SAME_NAME),
    made(4, TOOL | {"session.id": "middle"}, 2),
    made(5, HTTP, 4),
    made(6, AGENT | {"gen_ai.agent.name": "coder"}, 5),
    made(7, AGENT | {"user.id": "bob@example.com"}, 6),
    chat(8, 7, **SAME_NAME),
    chat(9, 7),
    chat(10, 6),
    made(11, TOOL, 2),
    chat(12, 11),
]
GIVEN = ("run", "user", "team", "session", "api_key", "tags")


def given_in(records: Iterable[Record]) -> dict[bytes, dict[str, Any]]:
    """Return run, user, team, session and tags of each call, after its corrections."""
    given: dict[bytes, dict[str, Any]] = {}
    for record in sorted(records, key=lambda record: isinstance(record, Correction)):
        if isinstance(record, Inference):
            given[record.id] = {name: getattr(record, name) for name in GIVEN}
        elif isinstance(record, Correction):
            given[record.corrects] |= {name: getattr(record.after, name) for name in GIVEN}
    return given


async def given_by(
    bodies: Sequence[bytes], *, pause: float = 0, directory: Path | None = None
) -> dict[bytes, dict[str, Any]]:
    gateway = Gateway(directory)
    await gateway.start()
    for request in requests_of(bodies):
        await gateway.take(request)
        await gateway.pass_time(pause)
        await gateway.restart()
    records, conflicts = await gateway.closed()
    assert conflicts == 0
    return given_in(records)


@pytest.mark.parametrize("pause", part([0.0, 5.0, 60.0], every=3), ids=["at once", "open", "closed"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_what_spans_give_does_not_depend_on_requests(
    pause: float, restarts: bool, tmp_path: Path
) -> None:
    """
    If spans of a trace arrive in 2 or 12 requests, agent, session, user, team and branch of each call are the same
    as if all spans had arrived in one.
    """
    spans = [in_protobuf(traces(each)) for each in GIVING]
    expected = await given_by([b"".join(spans)])
    hashed = {call["user"] for call in expected.values()} - {"ann"}
    assert 1 == len(hashed)
    assert "@" not in hashed.pop()
    assert {"planner", "coder"} == {call["tags"]["agent"] for call in expected.values()}
    assert {"outer", "middle"} == {call["session"] for call in expected.values()}
    assert {("search", "main")} == {(call["team"], call["tags"]["branch"]) for call in expected.values()}
    chance = random.Random(SEED)
    for number, order in enumerate(orders(spans)):
        at = chance.randrange(1, len(order))
        halves = [b"".join(order[:at]), b"".join(order[at:])]
        for size, bodies in enumerate((order, halves)):
            directory = tmp_path / f"{number}-{size}" if restarts else None
            assert expected == await given_by(bodies, pause=pause, directory=directory)


async def test_no_address_of_a_person_waits_on_disk(tmp_path: Path) -> None:
    """
    Values from spans that wait on disk for further spans have the form that they have in records: addresses are
    hashed, and content is not stored.
    """
    gateway = Gateway(tmp_path)
    await gateway.start()
    given = {"user.id": "eve@example.com", "session.id": "s-77", "gen_ai.input.messages": "the prompt"}
    await gateway.take(Request("otlp/traces", in_protobuf(traces(made(2, AGENT | given)))))
    await gateway.end()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"s-77" in stored
    assert b"eve@" not in stored
    assert b"the prompt" not in stored


async def test_values_of_a_report_stay(tmp_path: Path) -> None:
    """
    A call keeps what it states itself, except for the name of the agent, which the run states. Too long values are not
    remembered.
    """
    own = chat(3, 2)
    own["attributes"] += [attribute("user.id", "cy"), attribute("gen_ai.agent.name", "own")]
    long = AGENT | {"session.id": "x" * (LONGEST_GIVEN + 1)}
    short = AGENT | {"user.id": "ann", "session.id": "s"}
    for agent, session, name in ((short, "s", "outer"), (long, None, "own")):
        spans = [in_protobuf(traces(each)) for each in (own, made(2, agent | {"gen_ai.agent.name": "outer"}))]
        [found] = (await given_by(spans)).values()
        assert ("cy", session, name) == (found["user"], found["session"], found["tags"]["agent"])


@pytest.mark.proof
async def test_two_gateways_give_the_same(request: pytest.FixtureRequest) -> None:
    """
    The result is the same if the spans around a call reach another gateway on the same database than the call.
    """
    spans = [in_protobuf(traces(each)) for each in GIVING]
    expected = await given_by([b"".join(spans)])
    sessions = sorted(str(call["session"]) for call in expected.values())
    for pause in (0.0, 60.0):
        gateways = SharedGateways(schemas_of(POSTGRES, request)())
        await gateways.start()
        for each in requests_of(spans[::-1] if pause else spans):
            await gateways.take(each)
            await gateways.pass_time(pause)
        rows, _ = await gateways.judged()
        latest = {row["id"]: row["session"] for row in rows if row["kind"] == "inference"}
        latest |= {row["corrects"]: row["session"] for row in rows if row["kind"] == "correction"}
        assert sessions == sorted(map(str, latest.values()))


async def test_runs_survive_a_kill(tmp_path: Path) -> None:
    """
    Runs survive a kill: the process is killed after the acknowledgement of each call, before the spans of the
    agents arrive.
    """
    spans = of_nested()
    expected = await asyncio.to_thread(expected_of, spans)
    order = spans[::-1]
    for place in range(1, len(spans)):
        (tmp_path / f"{place}").mkdir()
        before, copied = tmp_path / f"{place}" / "before", tmp_path / f"{place}" / "copied"
        gateway = Gateway(before)
        await gateway.start()
        for request in requests_of(order[:place]):
            await gateway.take(request)
        revived = Gateway(killed(before, copied))
        await gateway.end()
        await revived.start()
        for request in requests_of(order[place:]):
            await revived.take(request)
        rows, _ = await revived.end()
        assert expected == runs_in(rows)


@pytest.mark.proof
async def test_two_gateways(request: pytest.FixtureRequest) -> None:
    """Spans reach two gateways on one database in turn. Both are stopped, and one is killed."""
    spans = of_nested()
    expected = await asyncio.to_thread(expected_of, spans)
    for order in orders(spans):
        gateways = SharedGateways(schemas_of(POSTGRES, request)())
        await gateways.start()
        for place, each in enumerate(requests_of(order)):
            await gateways.take(each)
            await gateways.pass_time(5.0)
            if place % 5 == 3:
                await gateways.restart()
            if place == 6:
                await gateways.kill()
        rows, _ = await gateways.judged()
        assert expected == runs_in(rows)


async def test_no_key_attributes_the_calls_of_another_key() -> None:
    """An agent's span under another key does not change a call, although it names the span above this call."""
    gateway = Gateway(None)
    await gateway.start()
    call, agent = (in_protobuf(traces(each)) for each in (chat(3, 2), made(2, AGENT)))
    await gateway.take(Request("otlp/traces", call))
    await gateway.take(Request("otlp/traces", agent, AuthenticatedKey("mallory", frozenset())))
    rows, _ = await gateway.end()
    assert [None] == [row.get("run") for row in rows]
