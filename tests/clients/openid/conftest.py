"""
A Tollhouse whose people sign in with a third-party provider (`oidc-provider` for Node), and a browser for
assistants that open one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest_asyncio

from gateway.configuration.sections import Config, McpOAuthSettings, McpSettings, OidcSettings
from spool.registry.operators import OPERATOR, Person
from spool.registry.roles import IS, LIMITED, NewRole, RoleFilter, RoleLimits
from spool.settings import SpoolSettings
from tests.clients import environments
from tests.clients.conftest import PROGRAMS
from tests.free_ports import free_port
from tests.integration.conftest import ACTOR, Serve, Serving, serve
from tests.spool.contract.examples import add, call

__all__ = ["serve"]


@dataclass
class Place:
    serving: Serving
    issuer: str
    resource: str
    directory: Path
    running: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start(self, *words: str, **environment: str) -> asyncio.subprocess.Process:
        """Start a client, which is killed at the end of the test."""
        pipe = asyncio.subprocess.PIPE
        env = {"PATH": os.environ["PATH"], **environment}
        process = await asyncio.create_subprocess_exec(*words, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
        self.running.append(process)
        return process

    def home(self, person: str, client: str) -> dict[str, str]:
        """
        Return the environment of a person's client: its own home, and a browser that signs the person in.
        """
        place = self.directory / f"{client}-{person}"
        for name in ("xdg-open", "firefox"):
            browser = place / "bin" / name
            browser.parent.mkdir(parents=True, exist_ok=True)
            program = f"{sys.executable} {PROGRAMS}/browser.py"
            browser.write_text(f'#!/bin/sh\nexec {program} "$@" 2>>{place}/browser.log\n')
            browser.chmod(0o700)
        path = f"{place}/bin:{os.environ['PATH']}"
        return {"HOME": str(place), "PATH": path, "BROWSER": str(browser), "PERSON": person}

    def grants(self) -> list[str]:
        """Return the grants for which clients received tokens, in order."""
        return (self.directory / "grants").read_text().split()

    async def robot(self, resource: str) -> str:
        """Fetch a program's token for a resource."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": "tollhouse.read"}
        headers = {"Authorization": aiohttp.encode_basic_auth("robot", "robot-secret")}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.issuer}/token", data=form, headers=headers) as answer,
        ):
            found = await answer.json()
            assert 200 == answer.status, found
            return str(found["access_token"])


@asynccontextmanager
async def serving_people(serve: Serve, issuer: str, own: int, directory: Path) -> AsyncIterator[Place]:
    """Run a Tollhouse at its own port whose people sign in with a provider, with calls of two teams."""
    resource = f"http://127.0.0.1:{own}/mcp"
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
    there = Place(serving, issuer, resource, directory)
    try:
        yield there
    finally:
        for client in there.running:
            if client.returncode is None:
                client.kill()
            await client.communicate()


@pytest_asyncio.fixture
async def place(serve: Serve, tmp_path: Path) -> AsyncIterator[Place]:
    node = shutil.which("node")
    installed = environments.node("oidc_provider")
    port, own = free_port(), free_port()
    issuer = f"http://127.0.0.1:{port}"
    with (tmp_path / "grants").open("wb") as grants:
        process = await asyncio.create_subprocess_exec(
            str(node),
            "provider.mjs",
            str(port),
            cwd=installed,
            stdout=grants,
            stderr=asyncio.subprocess.DEVNULL,
        )
    try:
        async with aiohttp.ClientSession() as session:
            while True:
                assert process.returncode is None
                try:
                    async with session.get(f"{issuer}/jwks"):
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)
        async with serving_people(serve, issuer, own, tmp_path) as there:
            yield there
    finally:
        process.kill()
        await process.wait()


async def limit(place: Place, person: str) -> str:
    """Create a person who sees one team and works on insights; return the id of the role."""
    registry = place.serving.app.services.operators.installation.require_registry()
    draft = NewRole(
        name="Chat", data_access=LIMITED, filters=(RoleFilter(dimension="team", values=("chat",), mode=IS),),
        permission_sets=("use_assistants", "work_on_insights"), members=(f"{person}@example.com",),
    )  # fmt: skip
    role = await registry.roles.create(draft, known_dimensions=("team",), limits=RoleLimits(), actor=ACTOR)
    known = Person(
        email=f"{person}@example.com", role="none", decides_role=False, issuer=place.issuer, subject=person
    )
    await registry.operators.add_person(known, address="", takes_over_accounts=False)
    return role.id
