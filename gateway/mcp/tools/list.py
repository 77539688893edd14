"""Every tool, in the order in which they are listed: a new one is a file here and a line there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.mcp.tool import Tool
from gateway.mcp.tools import budgets, cost_comparison, cost_data, dimension_values, dimensions, insights, org_context

TOOLS: Mapping[str, Tool[Any]] = {
    each.TOOL.name: each.TOOL
    for each in (org_context, dimensions, dimension_values, cost_data, cost_comparison, budgets, insights)
}
