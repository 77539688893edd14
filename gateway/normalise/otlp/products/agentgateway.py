"""agentgateway: spans of the GenAI conventions."""

from __future__ import annotations

from gateway.normalise.otlp.product import TelemetryProduct

PRODUCT = TelemetryProduct(
    source="agentgateway",
    is_gateway=True,
    scopes=("agentgateway",),
    mark_beginnings=("agw.",),
    names={"cost": ("agw.ai.usage.cost.total",)},
    zero_cost_is_unknown=True,
)
