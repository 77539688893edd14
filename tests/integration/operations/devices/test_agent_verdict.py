"""The answer of an agent to an assistant's hook: the cost of the session, its limit, and who may ask."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.configuration.sections import Config
from gateway.devices.agent.hook import PATH, HookArguments, reason_to_refuse_hook_call
from gateway.devices.agent.session_meter import sum_session_cost
from gateway.people.authentication.bearer import AuthenticatedKey
from spool import money
from spool.record import AI_TELEMETRY
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from tests.gateway.normalise.otlp.payloads import attribute
from tests.integration.conftest import Serve, Serving
from tests.rounds import part
from tests.spool.ledger.rebuilding import rebuild_without_end

LOCAL = AuthenticatedKey("this machine", frozenset({INGEST}), device="laptop-1", is_local=True)
PATIENT_S = 600.0
SESSIONS = ("a-session", "another", "third")
OPEN_S = 3600.0


def call_of(session: str, number: int) -> Mapping[str, Any]:
    """Return Claude Code's report of a call, whose cost is its number in cents."""
    attributes = {
        "event.name": "api_request",
        "session.id": session,
        "model": "claude-sonnet-4-5",
        "request_id": f"req_{session}_{number}",
        "input_tokens": 10,
        "output_tokens": number,
        "cost_usd": number / 100,
    }
    return {
        "timeUnixNano": "0",
        "body": {"stringValue": "claude_code.api_request"},
        "attributes": [attribute(*each) for each in attributes.items()],
    }


async def _agent(serve: Serve, *, hold: float = OPEN_S) -> Serving:
    config = Config(spool=SpoolSettings(hold=hold, counter_wait=0))
    return await serve(config=config, local=LOCAL)


def logs(*calls: Mapping[str, Any]) -> bytes:
    scope = {"name": "com.anthropic.claude_code.events"}
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"scope": scope, "logRecords": calls}]}]}).encode()


async def _report(agent: Serving, *calls: Mapping[str, Any]) -> None:
    assert 200 == (await agent.send("/v1/logs", logs(*calls), key=None)).status


async def _cost(agent: Serving, session: str) -> Decimal:
    services = agent.app.services
    storage = services.storage
    spent = await sum_session_cost(session, storage.ledger, storage.log, services.receivers.clock.now())
    assert spent is not None
    return Decimal(money.units_to_text(spent))


async def _refusal(agent: Serving, session: str, limit: str = "", *, is_closed: bool = False) -> str:
    text = json.dumps({"session_id": session, "prompt": "What is the toll?"}).encode()
    return await asyncio.to_thread(
        reason_to_refuse_hook_call, HookArguments(agent.url, limit, is_closed), text, PATIENT_S
    )


def _shown_by_work(directory: Path, session: str) -> Decimal:
    """Return the cost of a session that `tollhouse work` shows."""
    words = ["work", "show", "session", session, "--json", "--data", str(directory)]
    shown = CliRunner().invoke(main, words, catch_exceptions=False)
    assert 0 == shown.exit_code, shown.output
    return Decimal(json.loads(shown.stdout)["own"]["cost"])


@pytest.mark.parametrize(("seed", "hold"), part([(1, 0.0), (2, 0.03), (3, 0.03), (4, OPEN_S)], every=3))
async def test_the_meter_is_the_count_by_hand(serve: Serve, seed: int, hold: float) -> None:
    """
    The agent's answer counts each session's cost like a count by hand. Calls arrive in random order, repeated and
    together. After each answer, the cost of a session is that of its calls, open ones included. Once they close,
    `tollhouse work` shows the same.
    """
    chance = random.Random(seed)
    agent = await _agent(serve, hold=hold)
    arriving = [(chance.choice(SESSIONS), number) for number in range(1, 30)]
    arriving += chance.sample(arriving, 10)
    chance.shuffle(arriving)
    arrived = set[tuple[str, int]]()
    cents = Counter[str]()
    while arriving:
        together = [arriving.pop() for _ in range(min(len(arriving), chance.randint(1, 3)))]
        await _report(agent, *(call_of(*each) for each in together))
        arrived.update(together)
        cents = Counter[str]()
        for session, number in arrived:
            cents[session] += number
        for session in SESSIONS:
            assert Decimal(cents[session]) / 100 == await _cost(agent, session)
    log = agent.app.services.storage.log
    while hold < OPEN_S and log.lowest_open_number(AI_TELEMETRY) < log.next_number(AI_TELEMETRY):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for session in SESSIONS:
        by_hand = Decimal(cents[session]) / 100 if hold < OPEN_S else Decimal(0)
        assert by_hand == await asyncio.to_thread(_shown_by_work, agent.app.config.data_dir, session)


async def test_a_session_is_refused_from_its_limit_on(serve: Serve) -> None:
    """
    If a session reaches its limit, the agent refuses further work, and the reason names both amounts. Below the
    limit, without a limit and in another session, work goes on.
    """
    agent = await _agent(serve)
    await _report(agent, call_of("a-session", 30), call_of("another", 10))
    assert "Tollhouse: this session has cost 0.30 USD, and its limit is 0.3 USD." == await _refusal(
        agent, "a-session", "0.3"
    )
    assert "" == await _refusal(agent, "a-session", "0.300000000001", is_closed=True)
    assert "" == await _refusal(agent, "a-session", is_closed=True)
    assert "" == await _refusal(agent, "another", "0.3", is_closed=True)
    assert "" == await _refusal(agent, "unknown", "0.3", is_closed=True)
    assert "its limit is 0 USD" in await _refusal(agent, "unknown", "0")


async def test_only_a_program_of_the_machine_that_names_a_session_gets_an_answer(serve: Serve) -> None:
    """
    The agent answers only a program of the machine that names a session. It answers neither a browser nor a wrong
    body, and a gateway has no such answer. A hook that is closed then refuses.
    """
    agent, gateway = await _agent(serve), await serve()
    asked = json.dumps({"session_id": "a-session"}).encode()
    browser = {"Origin": "https://example.com"}
    assert 403 == (await agent.send(PATH, asked, key=None, headers=browser)).status
    for wrong in (b"{}", b'{"session_id":""}', b'{"session_id":"a","session_limit":"-1"}'):
        assert 400 == (await agent.send(PATH, wrong, key=None)).status
    assert 405 == (await agent.send(PATH, b"", None, method="GET", key=None)).status
    assert 404 == (await gateway.send(PATH, asked)).status
    assert "" == await _refusal(gateway, "a-session")
    assert "refuses without one" in await _refusal(gateway, "a-session", is_closed=True)


async def test_no_verdict_while_totals_are_counted_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await _agent(serve)
    await _report(agent, call_of("a-session", 30))

    asked = json.dumps({"session_id": "a-session", "session_limit": "0.1"}).encode()
    async with rebuild_without_end(agent.app.services.storage.ledger):
        answer = await agent.send(PATH, asked, key=None)
        assert (503, "60") == (answer.status, answer.headers["Retry-After"])
        assert "" == await _refusal(agent, "a-session", "0.1")
        assert "refuses without one" in await _refusal(agent, "a-session", "0.1", is_closed=True)
