"""
The states of assistants on their way from the probe's file over the agent's heartbeat to the gateway's device.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Tollhouse, installations
from tests.acceptance.payloads import post, request, span
from tests.acceptance.test_devices import AGENT, FLEET, Agent, shown
from tests.waiting import wait_until

__all__ = ["installations"]


@pytest.fixture
def gateway(installations: Any) -> Tollhouse:
    made: Tollhouse = installations("gateway", server="")
    made.start()
    return made


@pytest.fixture
def laptop(installations: Any, gateway: Tollhouse) -> Agent:
    made: Agent = installations("laptop", config=AGENT.format(url=gateway.url), kind=Agent)
    (made.directory / "enrolment.key").write_text(gateway.key("enrolment", *FLEET))
    made.start()
    return made


def assistants(gateway: Tollhouse, laptop: Agent) -> dict[str, Any]:
    rows = shown(gateway, laptop.device).get("assistants") or {}
    return rows if isinstance(rows, dict) else {row["name"]: row for row in rows}


@pytest.mark.proof
def test_from_the_probe_to_the_gateway(gateway: Tollhouse, laptop: Agent) -> None:
    """
    The gateway states the result of a look at the machine within a minute, and so it does for a later change. The
    next regular heartbeat would be due only in 15 minutes.
    """
    wait_until((laptop.data / "device.key").exists, "the device's own key")
    wait_until((laptop.data / "link.json").exists, "the agent's own state")
    begin = time.monotonic()
    printed = laptop.json("agent", "probe")
    wait_until(lambda: len(assistants(gateway, laptop)) == 6, "the first states")
    print(f"push to first state: {time.monotonic() - begin:.1f} s")
    assert {name: row["state"] for name, row in printed["assistants"].items()} == {
        name: row["state"] for name, row in assistants(gateway, laptop).items()
    }
    printed["assistants"]["codex"] = {"state": "overridden", "cause": "environment", "configured": False}
    (laptop.data / "states.json").write_text(json.dumps(printed))
    begin = time.monotonic()
    wait_until(
        lambda: assistants(gateway, laptop)["codex"].get("cause") == "environment", "the changed state"
    )
    print(f"change to changed state: {time.monotonic() - begin:.1f} s")


def test_the_agent_states_how_it_runs(gateway: Tollhouse, laptop: Agent) -> None:
    """Heartbeats are numbered, and the probe finds the agent's address and newest records."""
    wait_until((laptop.data / "heartbeats.json").exists, "the first heartbeat")
    assert 200 == post(laptop.url, request([span("chatcmpl-" + "a" * 24)]), "").status
    wait_until(
        lambda: "otel" in shown(gateway, laptop.device)["sources"], "a heartbeat with the first source"
    )
    assert 2 <= json.loads((laptop.data / "heartbeats.json").read_text())["seq"] <= 10
    link = json.loads((laptop.data / "link.json").read_text())
    assert laptop.url == link["url"]
    assert "" == link["forward"]
    gateway.kill()
    assert {"claude-code", "codex"} < set(laptop.json("agent", "probe")["assistants"])


def test_an_agent_that_cannot_reach_its_gateway(installations: Any, tmp_path: Path) -> None:
    """If an agent cannot reach its gateway, its file states the reason as a code."""
    laptop: Agent = installations("laptop", config=AGENT.format(url="http://gateway.invalid"), kind=Agent)
    laptop.make_data_directory()
    (laptop.directory / "enrolment.key").write_text("key-of-nobody")
    laptop.start()

    def forward() -> str:
        word: str = json.loads((laptop.data / "link.json").read_text())["forward"]
        return word

    wait_until(lambda: (laptop.data / "link.json").exists() and forward() == "dns", "the reason")


def test_a_call_of_each_assistant_arrives(
    gateway: Tollhouse, laptop: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    `agent test codex` ends with 0 if a call from the settings arrives at the gateway, which does not count it, with
    3 if the gateway refuses it, and with 4 without an answer. The forms for MDMs have one line.
    """
    wait_until((laptop.data / "device.key").exists, "the device's own key")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("gateway.devices.agent.probe.machine.os.geteuid", lambda: 1000)
    file = tmp_path / "home/.codex/config.toml"
    file.parent.mkdir(parents=True)
    settings = f'[otel.exporter.otlp-http]\nendpoint = "{laptop.url}/v1/logs"\nprotocol = "json"\n'
    file.write_text(settings)

    def tested(code: int, *words: str) -> tuple[bool, str]:
        [row] = laptop.json("agent", "test", "codex", *words, code=code)["test"]
        return row["arrived"], row["cause"]

    assert (True, "") == tested(0)
    assert {} == shown(gateway, laptop.device)["sources"]
    assert not gateway.asked("/report?by=source&range=last_7d")["rows"]
    file.write_text(settings.replace(laptop.url, "https://collector.example.net"))
    assert (False, "overridden") == tested(1)
    file.write_text(settings)
    for form, printed in (("--jamf", "<result>codex: arrived</result>\n"), ("--intune", "codex: arrived\n")):
        assert printed == laptop._invoke("agent", "test", "codex", form).stdout
    gateway.run("devices", "revoke", laptop.device)
    assert (False, "refused") == tested(3)
    gateway.kill()
    assert (False, "no_answer") == tested(4, "--wait", "0")
    laptop.kill()
    assert (False, "agent_down") == tested(1, "--wait", "0")
