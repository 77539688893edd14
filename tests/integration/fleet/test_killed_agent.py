"""An agent that is killed after it answered a call, and before it wrote the file of heard calls."""

from __future__ import annotations

import json
import time
from pathlib import Path

from gateway.cli.agent_run import record_calls_since_stop
from gateway.devices.agent.activity import ActivityRecorder
from gateway.devices.agent.heard_calls import read_heard_calls
from gateway.devices.agent.sessions import session_key
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.record import AI_TELEMETRY
from spool.registry.scopes import INGEST
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span

LOCAL = AuthenticatedKey("this machine", frozenset({INGEST}), device="laptop", is_local=True)


def text(name: str, value: str) -> dict[str, object]:
    return {"key": name, "value": {"stringValue": value}}


async def call(agent: Serving, session: str) -> float:
    """Let Copilot CLI send a call of a session that ends now; return its end."""
    ended = time.time_ns()
    span = json_span(startTimeUnixNano=str(ended - 5_000_000_000), endTimeUnixNano=str(ended))
    span["attributes"] += [text("gen_ai.conversation.id", session)]
    resource = {"attributes": [text("service.name", "github-copilot")]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    answer = await agent.send("/v1/traces", json.dumps(body).encode(), content_type="application/json")
    assert 200 == answer.status, answer.body
    return ended / 1e9


async def test_a_kill_loses_no_heard_call(serve: Serve, tmp_path: Path) -> None:
    """After a start, the calls of the log that the file does not have are heard, with their sessions."""
    agent = await serve(local=LOCAL)
    log = agent.app.services.storage.log
    recorder = ActivityRecorder(tmp_path, now=time.time)
    recorder.next_number = lambda: log.next_number(AI_TELEMETRY)
    agent.app.services.single.devices.called = recorder.record_calls
    await call(agent, "written")
    await recorder.stop()
    first = read_heard_calls(tmp_path)
    assert session_key("copilot_cli", "written") in first
    agent.app.services.single.devices.called = lambda calls: None
    ended = await call(agent, "killed")
    started = ActivityRecorder(tmp_path, now=time.time)
    started.next_number = recorder.next_number
    await record_calls_since_stop(started, log)
    await started.stop()
    found = read_heard_calls(tmp_path)
    assert {session_key("copilot_cli", id) for id in ("written", "killed")} <= found.keys()
    assert found[session_key("copilot_cli", "killed")].has_slot(int(ended // 300))
    # records that the file has are not read again
    assert started.heard.number == log.next_number(AI_TELEMETRY)
