"""Mirascope: spans of the GenAI conventions, with the parts of the counts in an object."""

from __future__ import annotations

from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import SpanDialect, SpanFields, TelemetryProduct
from gateway.normalise.otlp.usage_objects import counts_by_field, token_counts_in_tree
from gateway.normalise.reading import values

_USAGE = "mirascope.response.usage"
_NAMES = {
    "cache_read": ("cache_read_tokens",),
    "cache_write": ("cache_write_tokens",),
    "reasoning": ("reasoning_tokens",),
    "total": ("total_tokens",),
}
_APIS = (":completions", ":responses")
_BETA = "-beta"  # Mirascope's provider `anthropic-beta` is Anthropic


def _usage_fields(value: Any) -> SpanFields:
    return counts_by_field(values.dict_or_empty(value), _NAMES)


def _provider_without_api_suffix(stated: str | None, model: str | None) -> str | None:
    return (
        None
        if stated is None
        else semconv.normal_provider_name(_remove_api_suffix(stated).removesuffix(_BETA))
    )


def _remove_api_suffix(name: str) -> str:
    return next((name.removesuffix(api) for api in _APIS if name.endswith(api)), name)


def _use_provider_model_name(span: Span, call: SpanCall) -> None:
    """
    Set the model to the provider's name for it. Mirascope adds its own names of provider and API, and states
    the requested model as the response model as well.
    """
    record = call.record
    record.response_model = None
    if record.request_model is not None:
        provider, slash, model = record.request_model.partition("/")
        stated = values.text_or_none(span.attributes.get(semconv.PROVIDER[0])) or ""
        is_prefixed = slash and provider == _remove_api_suffix(stated)
        record.request_model = _remove_api_suffix(model if is_prefixed else record.request_model)


PRODUCT = TelemetryProduct(
    source="mirascope",
    scopes=("mirascope.llm", "mirascope.ops"),
    mark_beginnings=("mirascope.",),
    names={"session": ("mirascope.ops.session.id",)},
    containers={_USAGE: _usage_fields},
    reductions={_USAGE: token_counts_in_tree},
    spans=SpanDialect(provider=_provider_without_api_suffix, refine=_use_provider_model_name),
)
