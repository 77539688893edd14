"""Messages of assistants on stdio."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator import assistants
from spool.registry.permission_sets import USE_ASSISTANTS

ROWS = (
    call("POST", "/mcp", USE_ASSISTANTS, assistants.relay_mcp, "Answer a message of an assistant on stdio",
         takes=assistants.McpLine, in_turn=True, asks_much=assistants.asks_tool_on_stdio),
)  # fmt: skip
