"""Tools that the organization disables one by one: a disabled tool is unavailable on every path."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from gateway.core.paths import socket_path
from gateway.mcp.protocol import MODERN
from gateway.mcp.resources import CONTEXT_URI
from gateway.mcp.tools import list as tool_list
from gateway.mcp.tools.list import TOOLS
from spool.registry.scopes import AI_HUB
from tests.integration.conftest import ACTOR, servers
from tests.integration.mcp.conftest import META
from tests.integration.mcp.people import Door, open_door
from tests.integration.operations.server import OperatorServer
from tests.rounds import part

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALL_ON = {"tools": dict.fromkeys(TOOLS, True), "calls_per_minute": 1_000_000}
Ask = Callable[..., Awaitable[Mapping[str, Any]]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    place = tmp_path_factory.mktemp("one-by-one")
    admin = {"default_role": "admin"}
    async with servers(place) as serve, open_door(serve, place, oidc=admin, mcp=ALL_ON) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ways(door: Door) -> Mapping[str, Ask]:
    """
    Return every path of an assistant: with a key, with a token and over stdio, each in both protocol generations.
    """
    key = await door.serving.make_key("assistant", scopes=[AI_HUB])
    token = door.provider.access_token(scope="tollhouse.read tollhouse.write")
    app = door.serving.app
    socket = socket_path(app.config.data_dir)
    server = OperatorServer(app.services.operators, app.services.storage, door.clock, app.url, socket)

    def over_http(authorization: str, *, modern: bool) -> Ask:
        async def ask(method: str, **params: Any) -> Mapping[str, Any]:
            body, headers = message(method, params, modern=modern)
            answer = await door.post(body, None, {**headers, "Authorization": authorization})
            found: Mapping[str, Any] = json.loads(answer.body)
            return found

        return ask

    def over_stdio(*, modern: bool) -> Ask:
        async def ask(method: str, **params: Any) -> Mapping[str, Any]:
            body, _ = message(method, params, modern=modern)
            answer = await server.ask("POST", "/mcp", {"line": json.dumps(body)})
            assert 200 == answer.status, answer.payload
            found: Mapping[str, Any] = json.loads(answer.payload["line"])
            return found

        return ask

    return {
        f"{way} {'modern' if modern else 'legacy'}": ask
        for modern in (True, False)
        for way, ask in (
            ("key", over_http(key, modern=modern)),
            ("token", over_http(f"Bearer {token}", modern=modern)),
            ("stdio", over_stdio(modern=modern)),
        )
    }


def message(
    method: str, params: Mapping[str, Any], *, modern: bool
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params)}
    if not modern:
        return body, {}
    body["params"]["_meta"] = META  # type: ignore[index]
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if name := params.get("name") or params.get("uri"):
        headers["Mcp-Name"] = name
    return body, headers


async def listed(ask: Ask, kind: str, field: str = "name") -> list[str]:
    answer = await ask(f"{kind}/list")
    return [each[field] for each in answer["result"][kind]]


@pytest.mark.parametrize("name", part([*TOOLS], every=3))
async def test_a_disabled_tool_is_nowhere(door: Door, ways: Mapping[str, Ask], name: str) -> None:
    """
    A disabled tool is in no list and cannot be called. All other tools keep their order. The resource that
    needs it disappears as well. Enabling it restores it at once.
    """
    table = door.registry.assistant_tools
    await table.set_enabled(name, enabled=False, actor=ACTOR)
    for way, ask in ways.items():
        assert [each for each in TOOLS if each != name] == await listed(ask, "tools"), way
        called = await ask("tools/call", name=name, arguments={})
        error = called["error"]
        assert error["code"] == -32602, way
        assert "not enabled in this organization" in error["message"], way
        has_context = CONTEXT_URI in await listed(ask, "resources", "uri")
        read = await ask("resources/read", uri=CONTEXT_URI)
        assert (name != "get_org_context") == has_context == ("result" in read), way
    await table.set_enabled(name, enabled=True, actor=ACTOR)
    for way, ask in ways.items():
        assert [*TOOLS] == await listed(ask, "tools"), way


@pytest.mark.parametrize("writes", [False, True])
async def test_a_new_tool_arrives_enabled_if_it_reads(
    door: Door, ways: Mapping[str, Ask], monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    """A new tool that only reads is enabled, because nobody has decided about it and no file names it."""
    like = TOOLS["log_insight" if writes else "get_reference_info"]
    monkeypatch.setitem(TOOLS, "newest", replace(like, name="newest"))
    tool_list.encode_tools_list.cache_clear()
    for way, ask in ways.items():
        assert (not writes) == ("newest" in await listed(ask, "tools")), way
        called = await ask("tools/call", name="newest", arguments={})
        assert writes == ("not enabled" in called.get("error", {}).get("message", "")), way
    monkeypatch.undo()
    tool_list.encode_tools_list.cache_clear()
