"""A server with an assistant's key, and messages of both protocol generations."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest_asyncio

from gateway.configuration.sections import Config
from gateway.mcp.protocol import MODERN
from spool.registry.scopes import AI_HUB
from tests.integration.conftest import Answer, Serve, Serving
from tests.integration.payloads import json_span, json_traces

VERSION, CAPABILITIES = (
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
)
META = {VERSION: MODERN, CAPABILITIES: {}}


@dataclass
class Assistant:
    """
    An assistant with a key. It sends messages of the stateless revision, or of the one that `legacy` names.
    """

    serving: Serving
    key: str

    async def post(
        self, body: object, headers: Mapping[str, str] | None = None, *, key: str | None = ""
    ) -> Answer:
        """Send the body unchanged."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.serving.send("/mcp", sent, key=self.key if key == "" else key, headers=headers)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, *, id: object = 1) -> Answer:
        """Send a well-formed request of the modern revision."""
        asked = {**(params or {}), "_meta": META}
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        name = asked.get("name") or asked.get("uri")
        if name:
            headers["Mcp-Name"] = name
        return await self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": asked}, headers)

    async def ask_legacy(
        self, method: str, params: Mapping[str, Any] | None = None, version: str = ""
    ) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})}
        answer = await self.post(body, {"MCP-Protocol-Version": version} if version else {})
        assert 200 == answer.status, answer.body
        return json.loads(answer.body)

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Return the whole result of a tool."""
        answer = await self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert 200 == answer.status, answer.body
        return json.loads(answer.body)["result"]

    async def content(self, tool: str, **arguments: Any) -> Any:
        """Return the structured content of a tool that succeeds."""
        result = await self.call(tool, **arguments)
        assert result["isError"] is False, result
        return result["structuredContent"]

    async def mistake(self, tool: str, **arguments: Any) -> str:
        """Return the error text of a tool that refuses its arguments."""
        result = await self.call(tool, **arguments)
        assert result["isError"] is True, result
        text: str = result["content"][0]["text"]
        return text

    async def calls(self, *models: str, days_ago: int = 0, **attributes: Any) -> None:
        """Send one call of each model, dated the given number of days ago."""
        start = int((datetime.now(UTC) - timedelta(days=days_ago)).timestamp()) * 10**9
        times: dict[str, Any] = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 10**9)}
        spans = [json_span(model, **times, **attributes) for model in models]
        answer = await self.serving.send("/v1/traces", json_traces(*spans))
        assert 200 == answer.status, answer.body


OpenAssistant = Callable[..., Awaitable[Assistant]]


@pytest_asyncio.fixture
async def open_assistant(serve: Serve) -> OpenAssistant:
    async def start(config: Config | None = None, **server: Any) -> Assistant:
        serving = await serve(config=config, **server)
        return Assistant(serving, await serving.make_key("assistant", scopes=[AI_HUB]))

    return start


@pytest_asyncio.fixture
async def assistant(open_assistant: OpenAssistant) -> Assistant:
    return await open_assistant()
