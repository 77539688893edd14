"""Langfuse's SDKs. One attribute states whether a span is a call, and the counts are in objects."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeNamesByField, KindAttribute, SpanFields, TelemetryProduct
from gateway.normalise.otlp.usage_objects import openai_usage
from gateway.normalise.reading import operations, values
from gateway.normalise.reading.meters import meters_of_buckets
from gateway.normalise.reading.tokens import is_token_bucket, tokens_of_buckets

_KIND = "langfuse.observation.type"
_OPERATIONS = {"generation": operations.CHAT, "embedding": operations.EMBEDDINGS}


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    return _OPERATIONS.get((values.text_or_none(span.attributes.get(_KIND)) or "").lower())


def _usage_fields(value: Any) -> SpanFields:
    buckets = values.dict_or_empty(value)
    details = (buckets.get("input_tokens_details"), buckets.get("output_tokens_details"))
    is_responses = isinstance(details[0], dict) or isinstance(details[1], dict)
    if is_responses or "prompt_tokens" in buckets or "completion_tokens" in buckets:
        return openai_usage(buckets)
    tokens = {
        name: semconv.parse_count_if_number(value, name)
        for name, value in buckets.items()
        if is_token_bucket(name)
    }
    known = {name: number for name, number in tokens.items() if number is not None}
    usage_fields: dict[str, Any] = {
        field: number for field, number in tokens_of_buckets(known)._asdict().items() if number is not None
    }
    if (bucket_meters := meters_of_buckets(buckets.items())) is not None:
        usage_fields["meters"] = bucket_meters
    return usage_fields


def _cost_field(value: Any) -> SpanFields:
    stated = values.dict_or_empty(value)
    total = semconv.parse_amount_if_number(stated.get("total"), "total")
    if total is not None:
        return {"cost": total}
    parts = [semconv.parse_amount_if_number(part, name) for name, part in stated.items()]
    known = [Decimal(part) for part in parts if part is not None]
    return {"cost": sum(known, Decimal())} if known else {}


PRODUCT = TelemetryProduct(
    source="langfuse",
    scopes=("langfuse-sdk",),
    # The level ERROR marks a failure, because the JavaScript SDK reports failures only in this way.
    kinds=(
        KindAttribute(
            attribute=_KIND, operation=_operation_if_call, failure=("langfuse.observation.level", "ERROR")
        ),
    ),
    names={"request_model": ("langfuse.observation.model.name",)},
    metadata=("langfuse.trace.metadata.", "langfuse.observation.metadata."),
    quotes_metadata=True,
    tag_lists=("langfuse.trace.tags",),
    containers={
        "langfuse.observation.usage_details": _usage_fields,
        "langfuse.observation.cost_details": _cost_field,
    },
)
