"""Kong: spans and metrics of the GenAI conventions, and a counter of cost."""

from __future__ import annotations

from gateway.normalise.otlp.product import MONEY_UNIT, MetricFamily, TelemetryProduct

PRODUCT = TelemetryProduct(
    source="kong",
    is_gateway=True,
    scopes=("kong",),
    scope_beginnings=("kong.", "kong-"),
    services=("kong",),
    mark_beginnings=("kong.",),
    # True, because operators may rename the service: names of routes and consumers on its points identify
    # Kong
    marks_points=True,
    zero_cost_is_unknown=True,
    metrics={"kong.gen_ai.llm.cost": MetricFamily(unit=MONEY_UNIT)},
)
