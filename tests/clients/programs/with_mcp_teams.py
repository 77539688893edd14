"""The official SDK of the Model Context Protocol, over the command MCP_COMMAND (JSON): the costs per team."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters


async def main() -> None:
    command, *words = json.loads(os.environ["MCP_COMMAND"])
    async with Client(StdioServerParameters(command=command, args=words), mode="legacy") as client:
        answer = await client.call_tool("get_cost_data", {"group_by": ["team"]})
    assert not answer.is_error, answer
    teams = sorted(row["group"]["team"] for row in answer.structured_content["rows"])
    sys.stdout.write(json.dumps({"teams": teams}))


asyncio.run(main())
