"""
OpenRouter's broadcast. The span `LLM Generation` is the call. The spans of attempts and of the inner
generation repeat it.

Users may rename the span of the call (`trace.generation_name`). A renamed span is recognized because it is
the only span that names a model.
"""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, SpanFields, TelemetryProduct
from gateway.normalise.otlp.span_rules import operation_by_span_name
from gateway.normalise.reading import values

_CALL = "LLM Generation"
_INNER, _ATTEMPT = "generation", "provider attempt "
_WRITTEN = ("gen_ai.usage.input_tokens.cache_write_5m", "gen_ai.usage.input_tokens.cache_write_1h")


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    operation = operation_by_span_name(span, attribute_names)
    if span.name == _CALL:  # a span of this name is always a call, even for images and speech
        return operation or values.text_or_none(span.attributes.get("gen_ai.operation.name"))
    is_part = span.name == _INNER or span.name.startswith(_ATTEMPT)
    return operation if attribute_names.request_model and not is_part else None


def _cache_write_fields(attributes: Attributes) -> SpanFields:
    parts = [semconv.parse_count_if_number(attributes.get(name), name) for name in _WRITTEN]
    known = [part for part in parts if part is not None]
    if not known:
        return {}
    one_hour = parts[-1]
    return {"cache_write": sum(known)} | ({} if one_hour is None else {"cache_write_1h": one_hour})


PRODUCT = TelemetryProduct(
    source="openrouter",
    is_gateway=True,
    scopes=("openrouter",),
    services=("openrouter",),
    mark_beginnings=("trace.metadata.openrouter.",),
    names={"api_key": ("trace.metadata.openrouter.api_key_name",)},
    metadata=("trace.metadata.",),
    no_metadata=("trace.metadata.openrouter.", "trace.metadata.provider_responses"),
    spans=SpanDialect(operation=_operation_if_call, more=_cache_write_fields),
)
