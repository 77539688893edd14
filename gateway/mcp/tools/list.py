"""
All tools, in the order in which they are listed. For a new tool, add a file in this folder and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from gateway.mcp.tool import McpTool, ToolCallContext
from gateway.mcp.tools import (
    allocation,
    budgets,
    cost_comparison,
    cost_data,
    dimension_values,
    dimensions,
    group_costs,
    insights,
    org_context,
    plan_costs,
    recommendations,
    reconciliation,
    reference_info,
    resource_metadata,
    savings,
    telemetry_data,
    telemetry_streams,
)
from gateway.operations.services import OperatorServices

TOOLS: Mapping[str, McpTool[Any]] = {
    tool.name: tool
    for tool in (
        org_context.TOOL,
        dimensions.TOOL,
        dimension_values.TOOL,
        cost_data.TOOL,
        cost_comparison.TOOL,
        group_costs.TOOL,
        budgets.TOOL,
        insights.TOOL,
        recommendations.TOOL,
        savings.TOOL,
        allocation.TOOL,
        reconciliation.TOOL,
        plan_costs.TOOL,
        telemetry_streams.TOOL,
        telemetry_data.TOOL,
        resource_metadata.TOOL,
        reference_info.TOOL,
        insights.LOG_TOOL,
        org_context.SET_TOOL,
    )
}


@lru_cache(maxsize=8)
def encode_tools_list(dimensions: tuple[str, ...], names: tuple[str, ...]) -> msgspec.Raw:
    """Return the named tools as JSON for the tools list. Cached, as it changes only with the dimensions."""
    return msgspec.Raw(msgspec.json.encode([TOOLS[name].tools_list_entry(dimensions) for name in names]))


def permitted_tools(call_context: ToolCallContext[OperatorServices]) -> Mapping[str, McpTool[Any]]:
    """
    Return the tools that are enabled and that the caller's rights allow.

    Includes tools that write even if the credential only allows reading, because a client requests more
    access only when a call fails.
    """
    return {
        name: tool
        for name, tool in TOOLS.items()
        if is_tool_enabled(call_context.services, name) and tool.is_permitted(call_context.rights)
    }


def is_tool_enabled(services: OperatorServices, name: str) -> bool:
    """
    Return whether a tool is enabled: by an operator's decision, or else by mcp.tools.

    If neither decides, tools that read are enabled, and tools that write follow mcp.writes.
    """
    registry = services.installation.registry
    settings = services.assistants.mcp()
    decided = None if registry is None else registry.assistant_tools.find(name)
    if decided is not None:
        return decided.enabled
    return settings.tools.get(name, settings.writes if TOOLS[name].writes else True)
