"""Vercel's AI SDK. The inner do* spans are the calls. The spans around them repeat the last call."""

from __future__ import annotations

from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import (
    AttributeNamesByField,
    KindAttribute,
    SpanDialect,
    SpanFields,
    TelemetryProduct,
)
from gateway.normalise.otlp.span_rules import AI_SDK_OPERATION, has_ai_sdk_input_count_excluding_cache
from gateway.normalise.otlp.usage_objects import counts_by_field, object_or_empty, token_counts_in_tree
from gateway.normalise.reading import operations, regions, values
from spool.identity import AS_ASSISTANT
from spool.processing import MODES

_OPERATIONS = (
    ("doGenerate", operations.CHAT),
    ("doStream", operations.CHAT),
    ("doEmbed", operations.EMBEDDINGS),
)
# Names that the SDK's providers add to a usage object that lacks the counts (up to version 5).
_PROVIDER_NAMES = {
    "cache_read": ("cacheReadInputTokens", "cachedPromptTokens", "promptCacheHitTokens"),
    "cache_write": ("cacheCreationInputTokens", "cacheWriteInputTokens"),
    "reasoning": ("reasoningTokens",),
}


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    name = values.text_or_none(span.attributes.get(AI_SDK_OPERATION)) or ""
    return next((operation for ending, operation in _OPERATIONS if name.endswith(ending)), None)


def _fields_of_provider_metadata(value: Any) -> SpanFields:
    if not isinstance(value, dict):
        return {}
    metadata_values = {
        name: _first_value_of_name_in_tree(value, name)
        for names in _PROVIDER_NAMES.values()
        for name in names
    }
    usage = object_or_empty(object_or_empty(value, "anthropic"), "usage")
    tier, region, cost = value.get("service_tier"), value.get("region"), value.get("cost")
    return {
        **counts_by_field(metadata_values, _PROVIDER_NAMES),
        **counts_by_field(usage, {"cache_read": ("cache_read_input_tokens",)}),
        **counts_by_field(
            object_or_empty(usage, "cache_creation"), {"cache_write_1h": ("ephemeral_1h_input_tokens",)}
        ),
        **({} if tier is None else {"service_tier": tier}),
        **({} if region is None else {"region": region}),
        **({} if cost is None else {"cost": cost}),
    }


def _usage_in_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    reduced = token_counts_in_tree(metadata)
    usage = object_or_empty(object_or_empty(metadata, "anthropic"), "usage")
    stated = (object_or_empty(metadata, "openai").get("serviceTier"), usage.get("service_tier"))
    tier = next(
        (candidate for candidate in stated if isinstance(candidate, str) and candidate in MODES), None
    )
    if tier is not None:
        reduced = {**reduced, "service_tier": tier}
    region = regions.normal_region_name(usage.get("inference_geo"))
    if region is not None:
        reduced = {**reduced, "region": region}
    cost = _charged_dollars(metadata)
    return reduced if cost is None else {**reduced, "cost": cost}


def _charged_dollars(metadata: dict[str, Any]) -> str | None:
    places = (
        object_or_empty(metadata, "gateway"),
        object_or_empty(object_or_empty(metadata, "openrouter"), "usage"),
    )
    for metadata_part in places:
        try:
            cost = values.parse_amount(metadata_part.get("cost"), "cost")
        except values.BadValue:
            continue
        if cost is not None:
            return cost
    return None


def _first_value_of_name_in_tree(tree: dict[str, Any], name: str) -> Any:
    """
    Return the first value under a name in a tree, whose depth `token_counts_in_tree` has already limited.
    """
    if name in tree:
        return tree[name]
    below = (
        _first_value_of_name_in_tree(branch, name) for branch in tree.values() if isinstance(branch, dict)
    )
    return next((value for value in below if value is not None), None)


_OPENCODE = "opencode"
_PARENT_SESSION = "ai.request.headers.x-parent-session-id"


def _fill_run_of_opencode(span: Span, call: SpanCall) -> None:
    if span.scope.name == _OPENCODE and call.record.run is None:
        call.record.run = call.caller.session
        call.record.parent_run = semconv.first_text(span.attributes, (_PARENT_SESSION,))
        call.relay_side, call.relayed_session = AS_ASSISTANT, call.caller.session


_METADATA = "ai.response.providerMetadata"

PRODUCT = TelemetryProduct(
    source="vercel_ai",
    scopes=("ai", "gen_ai"),
    marks=(AI_SDK_OPERATION,),
    kinds=(
        KindAttribute(
            attribute=AI_SDK_OPERATION,
            around=frozenset({"ai.toolcall"}),
            steps=None,
            operation=_operation_if_call,
        ),
    ),
    names={
        "input": ("ai.usage.inputTokens", "ai.usage.promptTokens", "ai.usage.tokens"),
        "output": ("ai.usage.outputTokens", "ai.usage.completionTokens"),
        "cache_read": ("ai.usage.cachedInputTokens", "ai.usage.inputTokenDetails.cacheReadTokens"),
        "cache_write": ("ai.usage.inputTokenDetails.cacheWriteTokens",),
        "reasoning": ("ai.usage.reasoningTokens", "ai.usage.outputTokenDetails.reasoningTokens"),
        "total": ("ai.usage.totalTokens",),
        "request_model": ("ai.model.id",),
        "response_model": ("ai.response.model",),
        "provider": ("ai.model.provider",),
    },
    metadata=("ai.telemetry.metadata.",),
    containers={_METADATA: _fields_of_provider_metadata},
    reductions={_METADATA: _usage_in_metadata},
    spans=SpanDialect(without_cache=has_ai_sdk_input_count_excluding_cache, refine=_fill_run_of_opencode),
)
