"""
OpenLIT: spans and events of the GenAI conventions. Their input count is the one that the provider reports.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.normalise.otlp.conventions import LOGGED
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import SpanDialect, TelemetryProduct
from gateway.normalise.otlp.span_rules import has_provider_input_count_excluding_cache
from gateway.normalise.reading.tokens import COUNT_CACHE_APART

_SDK = "telemetry.sdk.name"


def _is_span_of_openlit(span: Span) -> bool:
    return str(span.attributes[_SDK]) == "openlit"


PRODUCT = TelemetryProduct(
    source="openlit",
    scopes=("openlit",),
    sdks=("openlit",),
    weak_marks={_SDK: _is_span_of_openlit},
    zero_cost_is_unknown=True,
    spans=SpanDialect(without_cache=has_provider_input_count_excluding_cache),
    details=replace(LOGGED, without_cache=COUNT_CACHE_APART.__contains__),
)
