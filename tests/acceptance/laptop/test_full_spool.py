"""An agent whose disk or queue is full says so, and the gateway says which calls are lost."""

from __future__ import annotations

import json
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from tests.acceptance.conftest import Tollhouse, installations
from tests.acceptance.payloads import post, request, span
from tests.acceptance.test_devices import AGENT, FLEET, Agent, shown
from tests.small_disk import fill, small_disk
from tests.waiting import wait_until

__all__ = ["installations"]

STATES = {
    "codex": {"state": "reporting", "configured": True, "use": "heard"},
    "gemini-cli": {"state": "unused", "configured": True, "use": "none"},
    "copilot": {"state": "overridden", "cause": "other_endpoint", "configured": False, "use": "losing"},
    "opencode": {"state": "not_installed", "configured": False},
}


@pytest.fixture
def gateway(installations: Any) -> Tollhouse:
    made: Tollhouse = installations("gateway", more='[devices]\nheartbeat_interval = "1s"\n')
    made.start()
    return made


def agent(installations: Any, gateway: Tollhouse, config: str) -> Agent:
    made: Agent = installations("laptop", config=config, kind=Agent)
    (made.directory / "enrolment.key").write_text(gateway.key("enrolment", *FLEET))
    made.start()
    wait_until((made.data / "heartbeats.json").exists, "the first heartbeat")
    return made


def send(laptop: Agent, count: int = 1) -> int:
    """Send calls that nobody sent before; return the status."""
    return post(laptop.url, request([span(f"chatcmpl-{token_hex(12)}") for _ in range(count)]), "").status


def assistants(gateway: Tollhouse, laptop: Agent) -> dict[str, tuple[str, str | None]]:
    rows = shown(gateway, laptop.device).get("assistants") or []
    return {row["name"]: (row["state"], row["cause"]) for row in rows}


def test_a_full_disk_loses_the_calls_of_used_assistants(
    installations: Any, gateway: Tollhouse, tmp_path: Path
) -> None:
    """From the first refused request until there is space again. A call that goes elsewhere keeps its own cause."""
    with small_disk(tmp_path / "disk", mib=128) as disk:
        laptop = agent(installations, gateway, f'data_dir = "{disk}/data"\n' + AGENT.format(url=gateway.url))
        (laptop.data / "states.json").write_text(json.dumps({"assistants": STATES}))
        wait_until(lambda: "codex" in assistants(gateway, laptop), "the states")
        row = shown(gateway, laptop.device)
        assert (False, None) == (row["spool"]["full"], row["spool"]["refused_since"])
        filler = fill(disk)
        wait_until(lambda: send(laptop, 100) == 503, "the first refusal")  # the open log has some space left
        full = ("unreachable", "disk_full")
        wait_until(lambda: assistants(gateway, laptop)["codex"] == full, "the full disk")
        row = shown(gateway, laptop.device)
        found = assistants(gateway, laptop)
        assert ("losing", True) == (row["state"], row["spool"]["full"])
        assert row["enrolled"] < row["spool"]["refused_since"] <= row["last_seen"]
        assert ("unknown", "disk_full") == found["gemini-cli"]
        assert ("overridden", "other_endpoint") == found["copilot"]
        assert ("not_installed", None) == found["opencode"]
        assert "raise spool.max_bytes of the agent" in gateway.run("fleet", "causes")
        filler.unlink()
        wait_until(lambda: send(laptop) == 200, "space")
        wait_until(lambda: assistants(gateway, laptop)["codex"] != full, "the end of the loss")
        row = shown(gateway, laptop.device)
        assert (False, None) == (row["spool"]["full"], row["spool"]["refused_since"])
        laptop.kill()


@pytest.mark.proof
def test_a_start_on_a_full_disk_without_a_probe(
    installations: Any, gateway: Tollhouse, tmp_path: Path
) -> None:
    """Nothing was refused yet, and no assistant is known: nobody knows whether calls are lost."""
    with small_disk(tmp_path / "disk", mib=128) as disk:
        laptop = agent(installations, gateway, f'data_dir = "{disk}/data"\n' + AGENT.format(url=gateway.url))
        assert 200 == send(laptop)
        wait_until(lambda: shown(gateway, laptop.device)["state"] == "reporting", "the first call")
        laptop.kill()
        (laptop.data / "reserve").unlink()
        fill(disk)
        laptop.start()
        wait_until(lambda: shown(gateway, laptop.device)["spool"]["full"], "the full disk")
        row = shown(gateway, laptop.device)
        assert ("unknown", None) == (row["state"], row["spool"]["refused_since"])
        [cause] = gateway.json("fleet", "causes")["causes"]
        assert ("unknown", "disk_full", 1) == (cause["state"], cause["cause"], cause["devices"])
        assert 503 == send(laptop)
        wait_until(lambda: shown(gateway, laptop.device)["spool"]["refused_since"], "the first refusal")
        assert "unknown" == shown(gateway, laptop.device)["state"]
        laptop.kill()
