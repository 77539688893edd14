"""Pydantic AI, and Logfire beneath it, which also traces the providers' own SDKs."""

from __future__ import annotations

from typing import Any

from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import AttributeShape, Product, SpanDialect
from gateway.normalise.otlp.span_rules import by_operation_name, failed, has_usage
from gateway.normalise.otlp.usage_objects import answer_in

_SPAN_TYPE = "logfire.span_type"
_STREAM = {"stream": True}


def _operation(span: Span, shape: AttributeShape) -> str | None:
    """None for what Logfire sends beside a call: a span that has only begun, one that begins a stream."""
    if span.attributes.get(_SPAN_TYPE) == "pending_span" or _is_run(span):
        return None
    if _begins_stream(span.attributes) and not has_usage(span, shape) and not failed(span, shape):
        return None
    return by_operation_name(span, shape)


def _is_run(span: Span) -> bool:
    """Whether a span is a run of Pydantic AI's first version: an agent that repeats the sums of its calls."""
    attributes = span.attributes
    is_named = "gen_ai.agent.name" in attributes or "agent_name" in attributes
    return is_named and "gen_ai.operation.name" not in attributes


def _begins_stream(attributes: Attributes) -> bool:
    return attributes.get(_SPAN_TYPE) == "span" and attributes.get("request_data") == _STREAM


def _is_stream(request: dict[str, Any]) -> dict[str, Any]:
    return _STREAM if request.get("stream") is True else {}


PRODUCT = Product(
    source="pydantic_ai",
    scopes=("pydantic-ai",),
    mark_beginnings=("logfire.",),
    names={"cost": ("operation.cost",)},
    reductions={"request_data": _is_stream},
    texts={"response_data": answer_in},
    spans=SpanDialect(operation=_operation, is_agent=_is_run),
)
