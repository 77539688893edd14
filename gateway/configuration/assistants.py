"""What of [mcp] cannot run."""

from __future__ import annotations

from collections.abc import Iterator

from exporters.problems import one_of
from gateway.configuration.sections import McpSettings

# Those of gateway.mcp.tools.list, in its order: a name that is none of them would switch nothing, in silence.
TOOL_NAMES = (
    "get_org_context", "get_available_dimensions", "get_dimension_values", "get_cost_data", "compare_costs",
    "get_budgets", "get_insights", "get_optimize_recs", "get_realized_savings", "get_allocation_definitions",
    "get_reconciliation", "get_telemetry_streams", "get_telemetry_data", "get_reference_info", "log_insight",
    "set_org_context",
)  # fmt: skip


def problems(mcp: McpSettings) -> Iterator[str]:
    """In the user's own key names."""
    for name in mcp.tools:
        yield from one_of("mcp.tools", name, TOOL_NAMES)
