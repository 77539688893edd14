"""
The Claude API: spans that Anthropic's platform exports by itself, for Messages API requests and for sessions of
Managed Agents.
"""

from __future__ import annotations

from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, SpanRole, TelemetryProduct
from gateway.normalise.otlp.span_rules import operation_by_span_name

_REQUEST = "anthropic.messages.create"  # name of the span of a Messages API request
# attribute that marks the span of a session's turn; the model runs of the turn are spans below
_TURN = "anthropic.session.turn.stop_reason"


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    is_none = _TURN in span.attributes or span.name in PRODUCT.test_spans
    return None if is_none else operation_by_span_name(span, attribute_names)


def _span_role(span: Span, attribute_names: AttributeNamesByField) -> SpanRole:
    return SpanRole(is_agent=_TURN in span.attributes)


def _mark_provider_call_and_parts(span: Span, call: SpanCall) -> None:
    """
    Mark model runs inside a request or a turn as parts. Below a request, such a run is not a call of its own.
    """
    call.is_part = span.name != _REQUEST
    call.is_of_provider = True


PRODUCT = TelemetryProduct(
    source="claude_platform",
    scopes=("com.anthropic.claude-platform",),
    services=("claude-platform",),
    test_spans=("anthropic.test",),
    tags={"user_profile": ("anthropic.user_profile.id",)},
    spans=SpanDialect(operation=_operation_if_call, role=_span_role, refine=_mark_provider_call_and_parts),
)
