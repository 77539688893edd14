"""
OpenInference (Phoenix, Envoy). LLM, EMBEDDING and RERANKER spans are calls. AGENT spans of the Claude Agent
SDK are calls as well.
"""

from __future__ import annotations

import re
from typing import Any

from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import (
    AttributeNamesByField,
    KindAttribute,
    SpanDialect,
    SpanFields,
    TelemetryProduct,
)
from gateway.normalise.otlp.span_rules import (
    has_ai_sdk_input_count_excluding_cache,
    has_token_counts,
    is_failed_span,
    is_request_preparation,
)
from gateway.normalise.reading import operations, values

_KIND = "openinference.span.kind"
_OPERATIONS = {"LLM": operations.CHAT, "EMBEDDING": operations.EMBEDDINGS}
# Only the AGENT spans of this SDK carry usage.
_CLAUDE_AGENT_SDK = "openinference.instrumentation.claude_agent_sdk"
# first release of the SDK whose AGENT spans count the cache as part of the input
_HOLDS_CACHE_SINCE = (0, 1, 13)
_RELEASE = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", re.ASCII)


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    kind = (values.text_or_none(span.attributes.get(_KIND)) or "").upper()
    if kind == "RERANKER":
        return operations.RERANK if has_token_counts(span, attribute_names) else None
    if kind == "AGENT" and span.scope.name == _CLAUDE_AGENT_SDK:
        return (
            "invoke_agent"
            if has_token_counts(span, attribute_names) or is_failed_span(span, attribute_names)
            else None
        )
    return None if is_request_preparation(span, attribute_names) else _OPERATIONS.get(kind)


def _input_excludes_cache(span: Span, provider: str | None, model: str | None) -> bool:
    if span.scope.name != _CLAUDE_AGENT_SDK:
        return has_ai_sdk_input_count_excluding_cache(span, provider, model)
    release = _RELEASE.match(span.scope.version)
    return release is None or tuple(map(int, release.groups())) < _HOLDS_CACHE_SINCE


def _keep_only_model(parameters: dict[str, Any]) -> dict[str, Any]:
    model = values.text_or_none(parameters.get("model"))
    return {} if model is None else {"model": model}


def _dict_or_empty(value: Any) -> SpanFields:
    return value if isinstance(value, dict) else {}


_PARAMETERS = ("llm.invocation_parameters", "embedding.invocation_parameters")

PRODUCT = TelemetryProduct(
    source="openinference",
    marks=(_KIND,),
    marks_above_sender=True,
    names={
        "input": ("llm.token_count.prompt",),
        "output": ("llm.token_count.completion",),
        # the names that start with `metadata` are those of BeeAI
        "cache_read": ("llm.token_count.prompt_details.cache_read", "metadata.usage.cached_prompt_tokens"),
        "cache_write": (
            "llm.token_count.prompt_details.cache_write",
            "metadata.usage.cached_creation_tokens",
        ),
        "reasoning": ("llm.token_count.completion_details.reasoning",),
        "total": ("llm.token_count.total",),
        "request_model": (
            "llm.request.model_name",
            "llm.model_name",
            "embedding.model_name",
            "reranker.model_name",
        ),
        "response_model": ("llm.response.model_name",),
        "cost": ("llm.cost.total",),
    },
    tag_lists=("tag.tags",),
    kinds=(KindAttribute(attribute=_KIND, operation=_operation_if_call),),
    containers=dict.fromkeys(_PARAMETERS, _dict_or_empty),
    reductions=dict.fromkeys(_PARAMETERS, _keep_only_model),
    spans=SpanDialect(operation=_operation_if_call, without_cache=_input_excludes_cache),
)
