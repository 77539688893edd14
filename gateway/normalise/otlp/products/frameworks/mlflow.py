"""MLflow: a span says in one attribute whether it is a call, and holds its figures in objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.normalise.otlp.containers import counts
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeShape, Fields, Kind, Product
from gateway.normalise.reading import vocabulary as words

_KIND = "mlflow.spanType"
_OPERATIONS = {"CHAT_MODEL": words.CHAT, "LLM": words.CHAT, "EMBEDDING": words.EMBEDDINGS}
_USAGE = {
    "input": ("input_tokens",),
    "output": ("output_tokens",),
    "cache_read": ("cache_read_input_tokens",),
    "cache_write": ("cache_creation_input_tokens",),
    "total": ("total_tokens",),
}


def _operation(span: Span, shape: AttributeShape) -> str | None:
    return _OPERATIONS.get(words.text(words.unquoted(span.attributes.get(_KIND))) or "")


def _usage(value: Any) -> Fields:
    return counts(words.json_object(value), _USAGE)


def _cost(value: Any) -> Fields:
    cost = words.json_object(value).get("total_cost")
    return {} if cost is None else {"cost": cost}


def _text(field: str) -> Callable[[Any], Fields]:
    def read(value: Any) -> Fields:
        text = words.text(words.unquoted(value))
        return {} if text is None else {field: text}

    return read


PRODUCT = Product(
    source="mlflow",
    marks=(_KIND,),
    kinds=(Kind(attribute=_KIND, operation=_operation),),
    containers={
        "mlflow.chat.tokenUsage": _usage,
        "mlflow.llm.cost": _cost,
        "mlflow.llm.model": _text("model"),
        "mlflow.llm.provider": _text("provider"),
    },
)
