"""
Pi: spans of three packages. In one package, input excludes the cache. Another package reports usage on the
turns of its agent.
"""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import INPUT, OUTPUT
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import (
    MONEY_UNIT,
    AttributeNamesByField,
    MetricFamily,
    SpanDialect,
    TelemetryProduct,
)
from gateway.normalise.otlp.span_rules import has_token_counts, operation_by_span_name
from gateway.normalise.reading import operations

_LEAVES_CACHE_OUT = "pi-otel"
_TURNS, _TURN = "pi-otel-extension", "agent.turn"


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    if span.scope.name == _TURNS:
        return operations.CHAT if span.name == _TURN and has_token_counts(span, attribute_names) else None
    return operation_by_span_name(span, attribute_names)


def _input_excludes_cache(span: Span, provider: str | None, model: str | None) -> bool:
    return span.scope.name == _LEAVES_CACHE_OUT


PRODUCT = TelemetryProduct(
    source="pi",
    scopes=(_LEAVES_CACHE_OUT, _TURNS),
    services=("pi-coding-agent",),
    names={
        "input": ("llm.usage.input_tokens",),
        "output": ("llm.usage.output_tokens",),
        "cache_read": ("llm.usage.cache_read_tokens",),
        "cache_write": ("llm.usage.cache_write_tokens",),
        "cost": ("pi.cost.usd",),
    },
    spans=SpanDialect(operation=_operation_if_call, without_cache=_input_excludes_cache),
    metrics={
        "pi.tokens.input": MetricFamily(token_type=INPUT),
        "pi.tokens.output": MetricFamily(token_type=OUTPUT),
        "pi.agent.cost": MetricFamily(unit=MONEY_UNIT),
    },
)
