"""AG2: spans of the conventions. Next to each call, a second span repeats its usage."""

from __future__ import annotations

from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeShape, Kind, Product, SpanDialect, SpanRole
from gateway.normalise.otlp.span_rules import leaves_cache_out, operation_by_name
from gateway.normalise.reading import operations, values

_KIND = "ag2.span.type"
_STEPS = frozenset(
    {"agent", "tool", "conversation", "multi_conversation", "speaker_selection", "code_execution"}
)
_USAGE_KIND = "ag2.usage.kind"


def _operation(span: Span, shape: AttributeShape) -> str | None:
    if values.text(span.attributes.get(_KIND)) != "llm":
        return None
    return operation_by_name(span, shape) or operations.CHAT


def _role(span: Span, shape: AttributeShape) -> SpanRole:
    if values.text(span.attributes.get(_KIND)) != "usage":
        return SpanRole()
    return SpanRole(usage_of=values.text(span.attributes.get(_USAGE_KIND)) or "")


PRODUCT = Product(
    source="ag2",
    scopes=("opentelemetry.instrumentation.ag2",),
    marks=(_KIND,),
    kinds=(Kind(attribute=_KIND, operation=_operation, steps=_STEPS),),
    zero_cost_is_unknown=True,
    spans=SpanDialect(operation=_operation, without_cache=leaves_cache_out, role=_role),
)
