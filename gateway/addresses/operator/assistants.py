"""Messages of assistants on stdio."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator import assistant_tools, assistants
from gateway.operator.address import NOTHING, SLICED
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION, USE_ASSISTANTS

ROWS = (
    call("POST", "/mcp", USE_ASSISTANTS, assistants.relay_mcp, "Answer a message of an assistant on stdio",
         takes=assistants.McpLine, in_turn=True, shows=SLICED, asks_cost_type=True,
         asks_much=assistants.asks_tool_on_stdio),
    call("GET", "/assistant-tools", USE_ASSISTANTS, assistant_tools.list_assistant_tools,
         "List the tools of assistants", lists=assistant_tools.ASSISTANT_TOOLS, shows=NOTHING),
    call("PATCH", "/assistant-tools/{name}", ORGANIZATION_ADMINISTRATION, assistant_tools.set_assistant_tool,
         "Enable or disable a tool of assistants", takes=assistant_tools.ToolChange),
)  # fmt: skip
