"""
Genkit. The span of a model's or an embedder's action is the call. Its output contains the usage and the id.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import (
    AttributeNamesByField,
    KindAttribute,
    SpanDialect,
    SpanFields,
    TelemetryProduct,
)
from gateway.normalise.otlp.usage_objects import (
    UsageObject,
    first_unique_id,
    first_usage_with_counts,
    provider_or_framework_counts,
)
from gateway.normalise.payload.items import UNREADABLE
from gateway.normalise.reading import operations, values
from gateway.normalise.reading.tokens import Tokens, normalise_counts
from gateway.normalise.reading.values import (
    BadValue,
    Other,
    decimal_json_decoder,
    parse_count,
    struct_or_empty,
)

_KIND, _NAME, _OUTPUT = "genkit:metadata:subtype", "genkit:name", "genkit:output"
_STATE = "genkit:state"
_OPERATIONS = {"model": operations.CHAT, "embedder": operations.EMBEDDINGS}
# Plugin name -> provider, if the names differ.
_PROVIDERS = {"googleai": "gcp.gemini", "vertexai": "gcp.vertex_ai", "vertexModelGarden": "gcp.vertex_ai"}


class GenkitUsage(msgspec.Struct):
    """The usage object that Genkit itself writes, with the same names for every provider."""

    inputTokens: Any = None
    outputTokens: Any = None
    totalTokens: Any = None
    thoughtsTokens: Any = None
    cachedContentTokens: Any = None


class GenkitRaw(msgspec.Struct):
    """The id and the usage of the provider's own response."""

    id: Any = None
    responseId: Any = None
    usage: UsageObject | Other = None
    usageMetadata: UsageObject | Other = None


class GenkitOutput(msgspec.Struct):
    """Output of a model's action. Older releases name a member `custom`, and newer releases name it `raw`."""

    usage: GenkitUsage | Other = None
    raw: GenkitRaw | Other = None
    custom: GenkitRaw | Other = None


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    return _OPERATIONS.get(values.text_or_none(span.attributes.get(_KIND)) or "")


def _counts_and_id_of_output(written: str) -> dict[str, Any]:
    try:
        output = decimal_json_decoder(GenkitOutput).decode(written)
        usage_counts = _counts_of_usage(struct_or_empty(output.usage, GenkitUsage))
    except (*UNREADABLE, BadValue):
        return {}
    for raw in (struct_or_empty(output.raw, GenkitRaw), struct_or_empty(output.custom, GenkitRaw)):
        usage_counts = provider_or_framework_counts(
            usage_counts, first_usage_with_counts(raw.usage, raw.usageMetadata)
        )
        if (response_id := first_unique_id(raw.id, raw.responseId)) is not None:
            return {**usage_counts, "response_id": response_id}
    return usage_counts


def _counts_of_usage(usage: GenkitUsage) -> dict[str, Any]:
    total = parse_count(usage.totalTokens, "totalTokens")
    stated = Tokens(
        parse_count(usage.inputTokens, "inputTokens"),
        parse_count(usage.outputTokens, "outputTokens"),
        parse_count(usage.cachedContentTokens, "cachedContentTokens"),
        reasoning=parse_count(usage.thoughtsTokens, "thoughtsTokens"),
    )
    usage_counts = {
        field: number
        for field, number in normalise_counts(stated, total=total)._asdict().items()
        if number is not None
    }
    return {**usage_counts, "total": total} if usage_counts and total is not None else usage_counts


def _model_and_provider_fields(attributes: Attributes) -> SpanFields:
    plugin, slash, model = (values.text_or_none(attributes.get(_NAME)) or "").partition("/")
    if not slash:
        return {"model": plugin} if plugin else {}
    return {"model": model, "provider": _PROVIDERS.get(plugin, plugin)}


PRODUCT = TelemetryProduct(
    source="genkit",
    scopes=("genkit-tracer", "genkit"),
    mark_beginnings=("genkit:",),
    kinds=(KindAttribute(attribute=_KIND, operation=_operation_if_call, failure=(_STATE, "error")),),
    names={"session": ("genkit:sessionId",)},
    texts={_OUTPUT: _counts_and_id_of_output},
    spans=SpanDialect(operation=_operation_if_call, more=_model_and_provider_fields),
)
