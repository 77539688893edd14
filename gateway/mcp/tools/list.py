"""Every tool, in the order in which they are listed: a new one is a file here and a line there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from gateway.mcp.tool import Asking, Tool
from gateway.mcp.tools import (
    allocation,
    budgets,
    cost_comparison,
    cost_data,
    dimension_values,
    dimensions,
    insight_log,
    insights,
    org_context,
    org_context_setting,
    recommendations,
    reconciliation,
    reference_info,
    savings,
    telemetry_data,
    telemetry_streams,
)

TOOLS: Mapping[str, Tool[Any]] = {
    each.TOOL.name: each.TOOL
    for each in (
        org_context, dimensions, dimension_values, cost_data, cost_comparison, budgets, insights, recommendations,
        savings, allocation, reconciliation, telemetry_streams, telemetry_data, reference_info, insight_log,
        org_context_setting,
    )
}  # fmt: skip


@lru_cache(maxsize=8)
def listed(dimensions: tuple[str, ...], names: tuple[str, ...]) -> msgspec.Raw:
    """
    The tools of these names as they are listed, in JSON: the same for everybody until dimensions change.
    """
    return msgspec.Raw(msgspec.json.encode([TOOLS[name].shown(dimensions) for name in names]))


def offered(asking: Asking) -> Mapping[str, Tool[Any]]:
    """The tools for who asks: those that write only where mcp.writes allows it."""
    may_write = asking.may_write and asking.services.assistants.mcp().writes
    return {name: tool for name, tool in TOOLS.items() if may_write or not tool.writes}
