"""Langfuse's SDKs: a span says in one attribute whether it is a call, and holds its figures in objects."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gateway.normalise.otlp.containers import openai_usage
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeShape, Fields, Kind, Product
from gateway.normalise.reading import vocabulary as words
from gateway.normalise.reading.buckets import is_bucket, sums

_KIND = "langfuse.observation.type"
_OPERATIONS = {"generation": words.CHAT, "embedding": words.EMBEDDINGS}


def _operation(span: Span, shape: AttributeShape) -> str | None:
    return _OPERATIONS.get((words.text(span.attributes.get(_KIND)) or "").lower())


def _usage(value: Any) -> Fields:
    buckets = words.json_object(value)
    is_new = any(isinstance(buckets.get(f"{side}_tokens_details"), dict) for side in ("input", "output"))
    if is_new or "prompt_tokens" in buckets or "completion_tokens" in buckets:
        return openai_usage(buckets)
    tokens = {name: value for name, value in buckets.items() if is_bucket(name)}  # others may count seconds or images
    counts = {name: number for name, value in tokens.items() if (number := words.count(value)) is not None}
    return {name: number for name, number in sums(counts)._asdict().items() if number is not None}


def _cost(value: Any) -> Fields:
    stated = words.json_object(value)
    total = words.money(stated.get("total"))
    if total is not None:
        return {"cost": total}
    parts = [Decimal(cost) for part in stated.values() if (cost := words.money(part)) is not None]
    return {"cost": words.plain(sum(parts, Decimal()))} if parts else {}


PRODUCT = Product(
    source="langfuse",
    scopes=("langfuse-sdk",),
    # The level is all that the JavaScript SDK says of a failure.
    kinds=(Kind(attribute=_KIND, operation=_operation, failure=("langfuse.observation.level", "ERROR")),),
    containers={
        "langfuse.observation.usage_details": _usage,
        "langfuse.observation.cost_details": _cost,
    },
)
