"""
People sign in through the official SDK with Keycloak, a second provider, which does not know resource indicators.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from spool.registry.roles import RoleLimits
from tests.clients.openid import keycloak
from tests.clients.openid.conftest import Place, limit, serving_people
from tests.clients.openid.test_assistants_of_people import sign_in
from tests.free_ports import free_port
from tests.integration.conftest import ACTOR, Serve, serve

__all__ = ["serve"]
pytestmark = pytest.mark.clients


@dataclass
class House:
    place: Place
    provider: keycloak.Keycloak


@pytest_asyncio.fixture
async def house(serve: Serve, tmp_path: Path) -> AsyncIterator[House]:
    own = free_port()
    resource = f"http://127.0.0.1:{own}/mcp"
    async with (
        keycloak.running(resource, tmp_path) as provider,
        serving_people(serve, provider.issuer, own, tmp_path) as place,
    ):
        yield House(place, provider)


async def test_people_of_keycloak(house: House) -> None:
    """
    Two people get their own results for the same request, over both protocol revisions. Writing requests more
    scopes and requires a role. A token for another audience is refused. After a role is removed, the next
    request is refused. An expired token is refreshed.
    """
    place = house.place
    role = await limit(place, "eve")
    ada = await sign_in(place, "ada", "legacy", "assistant")
    hers, written = await ada.told(), await ada.told()
    assert hers["teams"] == ["chat", "search"]
    assert written["written"] is True
    assert {"tollhouse.read", "tollhouse.write"} <= set(written["asked"][-1].split())
    eve = await sign_in(place, "eve", "2026-07-28", "assistant")
    his = await eve.told()
    assert his["teams"] == ["chat"]
    assert (await eve.told())["written"] is False
    outcomes = []
    for scope in ("email", "tollhouse.read"):
        headers = {"Authorization": f"Bearer {await house.provider.robot(scope)}"}
        answer = await place.serving.send("/mcp", b"{}", key=None, headers=headers)
        outcomes.append((answer.status, "(aud)" in answer.headers.get("WWW-Authenticate", "")))
    assert [(401, True), (403, False)] == outcomes
    registry = place.serving.app.services.operators.installation.require_registry()
    await registry.roles.change(
        role, {"members": ()}, version=None, known_dimensions=("team",), limits=RoleLimits(), actor=ACTOR
    )
    await asyncio.gather(ada.go_on("over"), eve.go_on())
    after = await ada.told()
    assert after["teams"] == ["chat", "search"]
    assert after["token"] != hers["token"]
    assert "refused" in await eve.told()
