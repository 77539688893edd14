"""MLflow. One attribute states whether a span is a call, and the counts are in objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeShape, Fields, Kind, Product
from gateway.normalise.otlp.span_rules import prepares
from gateway.normalise.otlp.usage_objects import answer_in, counts
from gateway.normalise.reading import operations, values

_KIND = "mlflow.spanType"
_OPERATIONS = {"CHAT_MODEL": operations.CHAT, "LLM": operations.CHAT, "EMBEDDING": operations.EMBEDDINGS}
_USAGE = {
    "input": ("input_tokens",),
    "output": ("output_tokens",),
    "cache_read": ("cache_read_input_tokens",),
    "cache_write": ("cache_creation_input_tokens",),
    "total": ("total_tokens",),
}


def _operation(span: Span, shape: AttributeShape) -> str | None:
    if prepares(span, shape):
        return None
    return _OPERATIONS.get(values.text(values.unquoted(span.attributes.get(_KIND))) or "")


def _usage(value: Any) -> Fields:
    return counts(values.mapping(value), _USAGE)


def _cost(value: Any) -> Fields:
    cost = values.mapping(value).get("total_cost")
    return {} if cost is None else {"cost": cost}


def _text(field: str) -> Callable[[Any], Fields]:
    def read(value: Any) -> Fields:
        text = values.text(values.unquoted(value))
        return {} if text is None else {field: text}

    return read


_MODEL = "mlflow.llm.model"

PRODUCT = Product(
    source="mlflow",
    marks=(_KIND,),
    kinds=(Kind(attribute=_KIND, operation=_operation),),
    containers={
        "mlflow.chat.tokenUsage": _usage,
        "mlflow.llm.cost": _cost,
        _MODEL: _text("model"),
        "mlflow.llm.provider": _text("provider"),
    },
    texts={"mlflow.spanOutputs": answer_in},
)
