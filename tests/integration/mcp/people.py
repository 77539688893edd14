"""A server whose assistants sign in as people, with the identity provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.configuration.sections import Config, McpOAuthSettings, McpSettings, OidcSettings
from gateway.mcp.protocol import MODERN
from spool.registry.registry import Registry
from spool.registry.roles import IS, LIMITED, NewRole, RoleFilter, RoleLimits
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR, Answer, Serve, Serving
from tests.integration.mcp.conftest import META
from tests.moved_clock import MovedClock
from tests.openid_provider import CLIENT, SECRET, OpenIdProvider, openid_provider

ADA, EVE = "ada@example.com", "eve@example.com"
RESOURCE = "https://tollhouse.example.com/mcp"
METADATA = "https://tollhouse.example.com/.well-known/oauth-protected-resource/mcp"


@dataclass
class Door:
    """The assistants' tools, with an identity provider that signs people in."""

    serving: Serving
    provider: OpenIdProvider
    clock: MovedClock

    @property
    def registry(self) -> Registry:
        return self.serving.app.services.operators.installation.require_registry()

    async def post(
        self, body: object, token: str | None, headers: Mapping[str, str] | None = None, path: str = "/mcp"
    ) -> Answer:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        carried = {**({} if token is None else {"Authorization": f"Bearer {token}"}), **(headers or {})}
        return await self.serving.send(path, sent, key=None, headers=carried)

    async def ask(self, token: str | None, method: str = "tools/list", **params: Any) -> Answer:
        """Send a well-formed request of the modern revision."""
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if name := params.get("name") or params.get("uri"):
            headers["Mcp-Name"] = name
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        return await self.post(body, token, headers)

    async def call(self, token: str, name: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.ask(token, "tools/call", name=name, arguments=arguments)
        assert 200 == answer.status, answer.body
        result: dict[str, Any] = json.loads(answer.body)["result"]
        return result

    async def teams(self, token: str) -> dict[str, str]:
        """Return the cost of each team that the person may see."""
        found = await self.call(token, "get_cost_data", group_by=["team"])
        assert not found["isError"], found
        rows = found["structuredContent"]["rows"]
        return {row["group"]["team"]: row["cost"] for row in rows}

    async def limit(self, person: str, team: str, *, groups: tuple[str, ...] = ()) -> str:
        """Create a role that shows only the calls of a team; return its id."""
        draft = NewRole(
            name=f"{team} of {person or groups}",
            data_access=LIMITED,
            filters=(RoleFilter(dimension="team", values=(team,), mode=IS),),
            permission_sets=("use_assistants",),
            members=(person,) if person else (),
            groups=groups,
        )
        role = await self.registry.roles.create(
            draft, known_dimensions=("team",), limits=RoleLimits(), actor=ACTOR
        )
        return role.id


@asynccontextmanager
async def open_door(
    serve: Serve,
    place: Path,
    *,
    oidc: Mapping[str, Any] | None = None,
    oauth: Mapping[str, Any] | None = None,
    mcp: Mapping[str, Any] | None = None,
    **server: Any,
) -> AsyncIterator[Door]:
    clock = MovedClock()
    async with openid_provider(clock) as provider:
        secret = place / "oidc-secret"
        secret.write_text(SECRET)
        settings = OidcSettings(
            issuer=provider.url,
            client_id=CLIENT,
            client_secret_file=secret,
            console="http://127.0.0.1:4319/console/",
            timeout=30,
            **{"default_role": "none", **(oidc or {})},
        )
        tools = McpSettings(oauth=McpOAuthSettings(**{"resource": RESOURCE, **(oauth or {})}), **(mcp or {}))
        config = Config(oidc=settings, mcp=tools, spool=SpoolSettings(hold=0, counter_wait=0))
        yield Door(await serve(config=replace(config), clock=clock, **server), provider, clock)
