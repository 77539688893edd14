"""Spring AI: spans of the GenAI conventions through Micrometer, whose exporter names no scope."""

from __future__ import annotations

from gateway.normalise.otlp.product import KindAttribute, SpanDialect, TelemetryProduct
from gateway.normalise.otlp.span_rules import has_provider_input_count_excluding_cache

PRODUCT = TelemetryProduct(
    source="spring_ai",
    scope_beginnings=("org.springframework", "io.micrometer"),
    sdks=("io.micrometer",),
    mark_beginnings=("spring.ai.",),
    kinds=(KindAttribute(attribute="spring.ai.kind", around=frozenset({"tool_call"})),),
    spans=SpanDialect(without_cache=has_provider_input_count_excluding_cache),
)
