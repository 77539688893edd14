"""
Envoy AI Gateway: OpenInference's spans, metrics of the GenAI conventions, and its access log as log records.
"""

from __future__ import annotations

from functools import partial

from gateway.normalise.formats import envoy_ai_gateway
from gateway.normalise.formats.engine.declaration import add_calls_of_gateway_row
from gateway.normalise.otlp.product import TelemetryProduct

PRODUCT = TelemetryProduct(
    source="envoy_ai_gateway",
    is_gateway=True,
    scope_beginnings=("envoyproxy/ai-gateway",),
    names_spans=False,
    taken_marks=("x-envoy-origin-path", "gen_ai.request.model_override"),
    take_log=partial(add_calls_of_gateway_row, envoy_ai_gateway.FORMAT),
)
