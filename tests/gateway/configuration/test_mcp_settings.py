"""The MCP settings know the names of all tools."""

from __future__ import annotations

from gateway.configuration.assistants import TOOL_NAMES
from gateway.mcp.tools.list import TOOLS


def test_every_tool_can_be_named() -> None:
    assert tuple(TOOLS) == TOOL_NAMES
