"""Every tool, in the order in which they are listed: a new one is a file here and a line there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from gateway.http.services import OperatorServices
from gateway.mcp.tool import Asking, Tool
from gateway.mcp.tools import (
    allocation,
    budgets,
    cost_comparison,
    cost_data,
    dimension_values,
    dimensions,
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

TOOLS: Mapping[str, Tool[Any]] = {
    tool.name: tool
    for tool in (
        org_context.TOOL,
        dimensions.TOOL,
        dimension_values.TOOL,
        cost_data.TOOL,
        cost_comparison.TOOL,
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
def listed(dimensions: tuple[str, ...], names: tuple[str, ...]) -> msgspec.Raw:
    """The tools of these names as they are listed, in JSON: the same for everybody until dimensions change."""
    return msgspec.Raw(msgspec.json.encode([TOOLS[name].shown(dimensions) for name in names]))


def offered(asking: Asking[OperatorServices]) -> Mapping[str, Tool[Any]]:
    """
    The tools for who asks: those that are enabled, and that the rights open.

    What writes is among them for a credential that is good for reading alone, too: a client asks for more
    only when it is told so at the call.
    """
    return {
        name: tool
        for name, tool in TOOLS.items()
        if is_enabled(asking.services, name) and tool.is_for(asking.rights)
    }


def is_enabled(services: OperatorServices, name: str) -> bool:
    """
    True if the organization has a tool enabled: as people decided, else as mcp.tools says.

    Where neither says anything, tools that read are, and those that write follow mcp.writes.
    """
    registry = services.installation.registry
    settings = services.assistants.mcp()
    decided = None if registry is None else registry.assistant_tools.find(name)
    if decided is not None:
        return decided.enabled
    return settings.tools.get(name, settings.writes if TOOLS[name].writes else True)
