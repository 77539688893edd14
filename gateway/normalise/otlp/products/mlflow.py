"""MLflow. One attribute states whether a span is a call, and the counts are in objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeNamesByField, KindAttribute, SpanFields, TelemetryProduct
from gateway.normalise.otlp.span_rules import is_request_preparation
from gateway.normalise.otlp.usage_objects import counts_by_field, parse_response_fields
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


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    if is_request_preparation(span, attribute_names):
        return None
    return _OPERATIONS.get(values.text_or_none(values.decode_if_json_text(span.attributes.get(_KIND))) or "")


def _usage_fields(value: Any) -> SpanFields:
    return counts_by_field(values.dict_or_empty(value), _USAGE)


def _cost_field(value: Any) -> SpanFields:
    cost = values.dict_or_empty(value).get("total_cost")
    return {} if cost is None else {"cost": cost}


def _text_field_reader(field: str) -> Callable[[Any], SpanFields]:
    def read_text_field(value: Any) -> SpanFields:
        text = values.text_or_none(values.decode_if_json_text(value))
        return {} if text is None else {field: text}

    return read_text_field


_MODEL = "mlflow.llm.model"

PRODUCT = TelemetryProduct(
    source="mlflow",
    marks=(_KIND,),
    kinds=(KindAttribute(attribute=_KIND, operation=_operation_if_call),),
    containers={
        "mlflow.chat.tokenUsage": _usage_fields,
        "mlflow.llm.cost": _cost_field,
        _MODEL: _text_field_reader("model"),
        "mlflow.llm.provider": _text_field_reader("provider"),
    },
    texts={"mlflow.spanOutputs": parse_response_fields},
)
