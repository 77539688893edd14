"""
The official SDK of the Model Context Protocol: list the tools, call one, and call it with wrong arguments.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


def server(transport: str) -> Any:
    """Return an HTTP server at MCP_URL with MCP_KEY, or the command MCP_COMMAND (JSON)."""
    if transport == "stdio":
        command, *words = json.loads(os.environ["MCP_COMMAND"])
        return StdioServerParameters(command=command, args=words)
    headers = {"Authorization": os.environ["MCP_KEY"]}
    return streamable_http_client(os.environ["MCP_URL"], http_client=httpx2.AsyncClient(headers=headers))


async def main(transport: str, mode: str) -> None:
    async with Client(server(transport), mode=mode) as client:
        tools = (await client.list_tools()).tools
        answer = await client.call_tool("get_cost_data", {"group_by": ["model"]})
        wrong = await client.call_tool("get_cost_data", {"filters": {"modle": ["x"]}})
    summary = {
        "tools": [tool.name for tool in tools],
        "is_error": answer.is_error,
        "calls": answer.structured_content["total"]["calls"],
        "wrong": [wrong.is_error, wrong.content[0].text],
    }
    sys.stdout.write(json.dumps(summary))


asyncio.run(main(*sys.argv[1:]))
