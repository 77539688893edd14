"""AG2: spans of the GenAI conventions. Next to each call, a second span repeats its usage."""

from __future__ import annotations

from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import (
    AttributeNamesByField,
    KindAttribute,
    SpanDialect,
    SpanRole,
    TelemetryProduct,
)
from gateway.normalise.otlp.span_rules import has_provider_input_count_excluding_cache, operation_by_span_name
from gateway.normalise.reading import operations, values

_KIND = "ag2.span.type"
_STEPS = frozenset(
    {"agent", "tool", "conversation", "multi_conversation", "speaker_selection", "code_execution"}
)
_USAGE_KIND = "ag2.usage.kind"


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    if values.text_or_none(span.attributes.get(_KIND)) != "llm":
        return None
    return operation_by_span_name(span, attribute_names) or operations.CHAT


def _span_role(span: Span, attribute_names: AttributeNamesByField) -> SpanRole:
    if values.text_or_none(span.attributes.get(_KIND)) != "usage":
        return SpanRole()
    return SpanRole(usage_of=values.text_or_none(span.attributes.get(_USAGE_KIND)) or "")


PRODUCT = TelemetryProduct(
    source="ag2",
    scopes=("opentelemetry.instrumentation.ag2",),
    marks=(_KIND,),
    kinds=(KindAttribute(attribute=_KIND, operation=_operation_if_call, steps=_STEPS),),
    zero_cost_is_unknown=True,
    spans=SpanDialect(
        operation=_operation_if_call, without_cache=has_provider_input_count_excluding_cache, role=_span_role
    ),
)
