"""Pydantic AI, and Logfire beneath it, which also traces the providers' own SDKs."""

from __future__ import annotations

from gateway.normalise.otlp.decoding.model import Attributes, Span
from gateway.normalise.otlp.dialect import Dialect, by_operation_name, failed, has_usage
from gateway.normalise.otlp.shapes import Shape

_SPAN_TYPE = "logfire.span_type"


def _operation(span: Span, shape: Shape) -> str | None:
    """Logfire sends a span that has only begun as one of its own, and what a stream brought as another beside it."""
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
    return attributes.get(_SPAN_TYPE) == "span" and attributes.get("request_data") == {"stream": True}


PYDANTIC_AI = Dialect(source="pydantic_ai", operation=_operation, is_agent=_is_run)
