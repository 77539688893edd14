"""
Cloudflare AI Gateway. Each span is a request to a model, even if it counts no tokens, as requests for images do.
"""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, TelemetryProduct
from gateway.normalise.otlp.span_rules import operation_by_span_name
from gateway.normalise.reading import operations


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    is_unnamed = "gen_ai.operation.name" not in span.attributes
    if is_unnamed and semconv.first_text(span.attributes, attribute_names.request_model) is not None:
        return operations.CHAT
    return operation_by_span_name(span, attribute_names)


PRODUCT = TelemetryProduct(
    source="cloudflare",
    is_gateway=True,
    marks=("gen_ai.model.provider",),
    names={"provider": ("gen_ai.model.provider",)},
    own_names={"user": (*semconv.USER, "user_id")},
    zero_cost_is_unknown=True,
    spans=SpanDialect(operation=_operation_if_call),
)
