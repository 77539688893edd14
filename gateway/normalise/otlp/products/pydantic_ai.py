"""Pydantic AI, and Logfire, which also traces the providers' own SDKs."""

from __future__ import annotations

from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, SpanRole, TelemetryProduct
from gateway.normalise.otlp.span_rules import has_token_counts, is_failed_span, operation_by_span_name
from gateway.normalise.otlp.usage_objects import parse_response_fields
from gateway.normalise.reading import operations

_SPAN_TYPE = "logfire.span_type"
# Scope of the SDK for Claude agents: only its agent spans have reliable usage, because spans of single turns
# have partial counts.
_CLAUDE_AGENT_SDK = "logfire.claude_agent_sdk"
_STREAM = {"stream": True}
_ANSWERS = ("usage", "response_data")


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    """
    Return the operation of a call. Return None for other spans that Logfire sends: pending spans, runs and
    starts of streams.
    """
    if span.attributes.get(_SPAN_TYPE) == "pending_span" or _is_agent_run(span):
        return None
    if span.scope.name == _CLAUDE_AGENT_SDK:
        is_agent = span.attributes.get("gen_ai.operation.name") == "invoke_agent"
        return "invoke_agent" if is_agent and has_token_counts(span, attribute_names) else None
    if _is_start_of_stream(span, attribute_names):
        return None
    return operation_by_span_name(span, attribute_names) or _chat_if_report_of_finished_stream(
        span, attribute_names
    )


def _is_agent_run(span: Span) -> bool:
    """Return whether a span is a run in Pydantic AI's first version, which sums up its calls."""
    attributes = span.attributes
    is_named = "gen_ai.agent.name" in attributes or "agent_name" in attributes
    return is_named and "gen_ai.operation.name" not in attributes


def _is_start_of_stream(span: Span, attribute_names: AttributeNamesByField) -> bool:
    """
    Return whether a span is the start of a stream, whose result a later span reports.

    Logfire up to version 4 marks such spans. From version 5 on, such a span holds only a request, without
    usage, id or exception.
    """
    attributes = span.attributes
    if (
        attributes.get(_SPAN_TYPE) != "span"
        or has_token_counts(span, attribute_names)
        or is_failed_span(span, attribute_names)
    ):
        return False
    if attributes.get("request_data") == _STREAM:
        return True
    holds_answer = any(name in attributes for name in (*_ANSWERS, *attribute_names.request_id)) or span.events
    return span.scope.name.startswith("logfire.") and not holds_answer


def _span_role(span: Span, attribute_names: AttributeNamesByField) -> SpanRole:
    return SpanRole(is_agent=_is_agent_run(span), begins_stream=_is_start_of_stream(span, attribute_names))


def _mark_report_of_finished_stream(span: Span, call: SpanCall) -> None:
    is_log = span.attributes.get(_SPAN_TYPE) == "log"
    call.reports_stream = is_log or span.name.startswith("streaming response")


def _chat_if_report_of_finished_stream(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    """
    Return "chat" for the report of a finished stream: it has a model and usage as an object, but no
    operation.
    """
    attributes = span.attributes
    is_over = span.scope.name.startswith("logfire.") and any(name in attributes for name in _ANSWERS)
    model_names = attribute_names.request_model + attribute_names.response_model
    return operations.CHAT if is_over and semconv.first_text(attributes, model_names) is not None else None


def _stream_field(request: dict[str, Any]) -> dict[str, Any]:
    return _STREAM if request.get("stream") is True else {}


PRODUCT = TelemetryProduct(
    source="pydantic_ai",
    scopes=("pydantic-ai",),
    mark_beginnings=("logfire.",),
    names={"cost": ("operation.cost",)},
    reductions={"request_data": _stream_field},
    texts={"response_data": parse_response_fields},
    spans=SpanDialect(operation=_operation_if_call, refine=_mark_report_of_finished_stream, role=_span_role),
)
