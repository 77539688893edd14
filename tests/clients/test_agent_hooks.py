"""
Claude Code with the hook of `tollhouse agent setup --hook`: a refusal blocks the prompt or the tool. The hook
starts the real command, next to a real agent without a gateway.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.devices.agent.assistants import ASSISTANTS
from gateway.devices.agent.settings import edit_settings, write_settings
from tests.acceptance.conftest import COMMAND
from tests.acceptance.test_devices import AGENT, Agent
from tests.clients.assistants import PROMPT, Place, claude_code
from tests.clients.conftest import PROGRAM_S
from tests.clients.provider import Provider
from tests.free_ports import free_port

pytestmark = pytest.mark.clients

CLAUDE_CODE = ASSISTANTS["claude-code"]
# A slow machine may leave no time for an answer. With --closed, the hook refuses in this case as well.
NOTHING = "--session-limit 0 --closed"
MUCH = "--session-limit 1000"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    config = AGENT.format(url=f"http://127.0.0.1:{free_port()}")
    laptop = Agent(tmp_path / "laptop", config)
    (laptop.directory / "enrolment.key").write_text("th_none")
    laptop.start()
    yield laptop
    laptop.stop(signal.SIGTERM, code=None)


@pytest.fixture
def provider() -> Iterator[Provider]:
    served = Provider()
    served.tool = served.starts_agents = "Agent"
    yield served
    served.close()


def run(agent: Agent, provider: Provider, home: Path, hook: str, *events: str) -> str:
    """Run Claude Code with hooks for these events; return what it prints."""
    home.mkdir()
    file = home / ".claude/settings.json"
    edited = edit_settings(
        CLAUDE_CODE, file, agent.url, hook=f"{COMMAND} agent verdict --endpoint {agent.url} {hook}"
    )
    write_settings(home / "record", CLAUDE_CODE, edited)
    settings = json.loads(file.read_text())
    settings["hooks"] = {event: settings["hooks"][event] for event in events}
    file.write_text(json.dumps(settings))
    place = Place(home=home, provider=provider.url, tollhouse=agent.url, key="", is_managed=True)
    started = claude_code(place)
    done = subprocess.run(
        started.command,
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **started.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_refusal_blocks_the_prompt(agent: Agent, provider: Provider, tmp_path: Path) -> None:
    """If the hook refuses the prompt, Claude Code calls no model."""
    shown = run(agent, provider, tmp_path / "home", NOTHING, *CLAUDE_CODE.hooks)
    assert [] == provider.journal.calls(), shown


def test_a_refusal_blocks_the_tool(agent: Agent, provider: Provider, tmp_path: Path) -> None:
    """If the hook refuses a tool, the tool does not run, and the model reads the reason."""
    run(agent, provider, tmp_path / "home", NOTHING, "PreToolUse")
    assert "Tollhouse: " in json.dumps(provider.turns[-1])


def test_session_below_its_limit_continues(agent: Agent, provider: Provider, tmp_path: Path) -> None:
    """
    Below the session's limit, the prompt and the tool run. The agent stores neither the prompt nor the input of the
    hook.
    """
    run(agent, provider, tmp_path / "home", MUCH, *CLAUDE_CODE.hooks)
    assert len(provider.turns) > 1
    assert "Tollhouse: " not in json.dumps(provider.turns)
    agent.stop(signal.SIGTERM, code=None)
    stored = [file.read_bytes() for file in agent.directory.rglob("*") if file.is_file()]
    assert not any(PROMPT.encode() in content for content in [*stored, "\n".join(agent.log).encode()])
