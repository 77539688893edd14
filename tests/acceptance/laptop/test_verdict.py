"""The hook of an assistant with the installed commands: agent and gateway as processes."""

from __future__ import annotations

import json
import signal
import subprocess
from decimal import Decimal
from typing import Any

import pytest

from gateway.devices.agent.hook import HookArguments, reason_to_refuse_hook_call
from tests.acceptance.conftest import COMMAND, Tollhouse
from tests.acceptance.payloads import post
from tests.acceptance.test_devices import AGENT, FLEET, Agent
from tests.integration.operations.devices.test_agent_verdict import call_of, logs
from tests.waiting import wait_until

pytestmark = pytest.mark.proof

PATIENT_S = 600.0
SESSION = "6ad9f8a2-session"
CANARY = "a canary sang in the coal mine"
INPUT = json.dumps({"session_id": SESSION, "prompt": CANARY, "cwd": f"/{CANARY}"}).encode()
GATEWAY = """
[devices]
heartbeat_interval = "1s"
verdicts = "amounts"
"""


def asks(agent: Agent, limit: str = "") -> str:
    return reason_to_refuse_hook_call(HookArguments(agent.url, limit, is_closed=True), INPUT, PATIENT_S)


def holders_of(text: str, agent: Agent) -> list[str]:
    """Return the files of an agent that contain a text, and "log" if its log does."""
    files = [
        file for file in agent.directory.rglob("*") if file.is_file() and text.encode() in file.read_bytes()
    ]
    return [file.name for file in files] + ["log"] * (text in "\n".join(agent.log))


@pytest.mark.timeout(1500)
def test_an_agent_answers_a_hook(installations: Any) -> None:
    """
    If the gateway believes the device's costs, the agent's meter of a session equals `tollhouse work` once the
    calls have arrived. The gateway's verdict arrives with a heartbeat. While the gateway is down, the meter
    continues. No file contains a prompt.
    """
    gateway: Tollhouse = installations("gateway", server='chain_keys = ["device *"]', more=GATEWAY)
    enrolment = gateway.key("enrolment", *FLEET)
    gateway.start()
    agent: Agent = installations("laptop", config=AGENT.format(url=gateway.url), kind=Agent)
    (agent.directory / "enrolment.key").write_text(enrolment)
    agent.start()
    assert (
        200
        == post(agent.url, logs(*(call_of(SESSION, number) for number in (10, 21))), "", "/v1/logs").status
    )
    assert "has cost 0.31 USD" in asks(agent, "0.31")
    assert "" == asks(agent, "0.311")

    def at_the_gateway() -> Decimal:
        return Decimal(gateway.asked(f"/work/session/{SESSION}")["own"]["cost"])

    wait_until(lambda: at_the_gateway() == Decimal("0.31"), "the calls at the gateway")
    gateway.run("views", "create", "--name", "all", "--principal", "model")
    gateway.run(
        "budgets", "create", "--name", "each laptop", "--view", "all", "--amount", "0.2", "--per", "device"
    )
    wait_until(lambda: "the budget each laptop is spent (0.31 of 0.2 USD)" in asks(agent), "the verdict")
    gateway.stop(signal.SIGTERM)
    assert 200 == post(agent.url, logs(call_of(SESSION, 30)), "", "/v1/logs").status
    agent.stop(signal.SIGTERM)
    agent.start()
    assert "" == asks(agent)
    assert "has cost 0.61 USD" in asks(agent, "0.6")
    words = [str(COMMAND), "agent", "verdict", "--endpoint", agent.url, "--closed", "--session-limit", "0.6"]
    done = subprocess.run(words, input=INPUT, capture_output=True, timeout=PATIENT_S, check=False)
    assert (2, b"", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))
    agent.stop(signal.SIGTERM)
    assert [] == holders_of(CANARY, agent)
