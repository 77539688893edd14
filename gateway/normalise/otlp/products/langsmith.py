"""
LangSmith's OTel exporter: runs of every kind with names of the GenAI conventions, and details as Python text.
"""

from __future__ import annotations

from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import (
    AttributeNamesByField,
    KindAttribute,
    SpanDialect,
    SpanFields,
    TelemetryProduct,
)
from gateway.normalise.otlp.span_rules import operation_by_span_name
from gateway.normalise.otlp.usage_objects import counts_by_field, numbers_in_python_repr, parse_usage_counts
from gateway.normalise.reading import values

_KIND = "langsmith.span.kind"
_BY_AGE = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    """
    Return the operation of a call by the kind of run. LangSmith also labels prompt templates `chat`
    and retrievers `embeddings`.
    """
    kind = values.text_or_none(span.attributes.get(_KIND))
    return operation_by_span_name(span, attribute_names) if kind in (None, "llm", "embedding") else None


def _input_detail_counts(value: Any) -> SpanFields:
    numbers = numbers_in_python_repr(value)
    details = counts_by_field(numbers, {"cache_read": ("cache_read",), "cache_write": ("cache_creation",)})
    if not details.get("cache_write"):  # cache writes are stated by lifetime, without their total
        by_age = [
            number
            for name in _BY_AGE
            if (number := semconv.parse_count_if_number(numbers.get(name), name)) is not None
        ]
        if by_age:
            details = {**details, "cache_write": sum(by_age)}
    return {**details, **counts_by_field(numbers, {"cache_write_1h": _BY_AGE[1:]})}


def _output_detail_counts(value: Any) -> SpanFields:
    return counts_by_field(numbers_in_python_repr(value), {"reasoning": ("reasoning",)})


PRODUCT = TelemetryProduct(
    source="langsmith",
    mark_beginnings=("langsmith.",),
    kinds=(KindAttribute(attribute=_KIND),),
    metadata=("langsmith.metadata.",),
    tag_lists=("langsmith.span.tags",),
    containers={
        "gen_ai.usage.input_token_details": _input_detail_counts,
        "gen_ai.usage.output_token_details": _output_detail_counts,
    },
    texts={"langsmith.metadata.usage_metadata": parse_usage_counts},
    spans=SpanDialect(operation=_operation_if_call),
)
