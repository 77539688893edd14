"""Rules that the spans of several products share."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeNamesByField
from gateway.normalise.reading import operations, tags, values
from gateway.normalise.reading.credits import CREDIT_DOLLARS, CREDITS_TAG, UNSCALED_CREDITS
from gateway.normalise.reading.tokens import COUNT_CACHE_APART
from gateway.normalise.reading.values import BadValue
from spool.record import decimal_text

ERROR_CODE = 2

_REQUEST_TYPES = {
    "chat": operations.CHAT,
    "completion": operations.COMPLETION,
    "embedding": operations.EMBEDDINGS,
    "rerank": operations.RERANK,
}
# request type that the library writes for methods that it cannot name, such as some asynchronous calls
_NO_REQUEST_TYPE = "unknown"
# Prefix of Anthropic's own scopes. Their spans without an operation may count tokens instead of being a call.
_NAMES_CALLS = "com.anthropic."


def no_operation_of_span(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    """Return None: spans of this product are not calls, because its logs report its calls in full."""
    return None


def is_request_preparation(span: Span, attribute_names: AttributeNamesByField) -> bool:
    """
    Return whether a span is the preparation of a request, which tracers of LlamaIndex models report as a
    call.
    """
    return span.name.rpartition(".")[2].startswith("_prepare_") and not has_token_counts(
        span, attribute_names
    )


def has_token_counts(span: Span, attribute_names: AttributeNamesByField) -> bool:
    return semconv.first_value(span.attributes, attribute_names.token_count_names) is not None


def is_failed_span(span: Span, attribute_names: AttributeNamesByField) -> bool:
    if span.status_code == ERROR_CODE:
        return True
    for kind in attribute_names.kinds:
        if kind.failure is not None and span.attributes.get(kind.failure[0]) == kind.failure[1]:
            return True
    if attribute_names.error and semconv.first_value(span.attributes, attribute_names.error) is not None:
        return True
    return bool(attribute_names.finish) and semconv.has_error_finish(
        span.attributes, attribute_names.finish, attribute_names.output
    )


_AGENTS = frozenset({"agent", "invoke_agent"})


def is_tool_or_agent_span(span: Span, attribute_names: AttributeNamesByField) -> bool:
    """
    Return whether a span is a tool or an agent. Calls below it are separate calls, even if the span is inside
    another call.
    """
    # `gen_ai.tool.name` does not mark a tool span, because the span of a call may name the tool that
    # the model requested.
    return attribute_names.names_tool or _has_kind_of_tool_or_agent(span, attribute_names)


def is_agent_span(span: Span, attribute_names: AttributeNamesByField) -> bool:
    attributes = span.attributes
    return any(
        str(attributes[kind.attribute]).strip('"').lower() in _AGENTS for kind in attribute_names.kinds
    )


def _has_kind_of_tool_or_agent(span: Span, attribute_names: AttributeNamesByField) -> bool:
    attributes = span.attributes
    return any(
        str(attributes[kind.attribute]).strip('"').lower() in kind.around for kind in attribute_names.kinds
    )


def is_of_sdk_naming_each_call(span: Span) -> bool:
    """
    Return whether the span's instrumentation names the operation of each call. Its spans without one are not
    calls.
    """
    return span.scope.name.startswith(_NAMES_CALLS)


def operation_by_span_name(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    """
    Return the operation by the span's name. A span that names none, but has a model or provider, and usage or
    an error, is a chat.
    """
    attributes = span.attributes
    if (operation_name := values.text_or_none(attributes.get(semconv.OPERATION_NAME))) is not None:
        return operations.BY_NAME.get(operation_name)
    request_type = values.text_or_none(attributes.get("llm.request.type"))
    if request_type is not None and request_type != _NO_REQUEST_TYPE:
        return _REQUEST_TYPES.get(request_type)
    names = attribute_names.request_model + attribute_names.response_model + attribute_names.provider
    if not names or _has_kind_of_tool_or_agent(span, attribute_names):
        return None
    if semconv.first_text(attributes, names) is None:
        return None
    is_call = has_token_counts(span, attribute_names)
    if not is_call and not is_of_sdk_naming_each_call(span):
        is_call = is_failed_span(span, attribute_names) or bool(span.events)
    return operations.CHAT if is_call else None


def has_bedrock_input_count_excluding_cache(span: Span, provider: str | None, model: str | None) -> bool:
    """
    Return whether the input count excludes the cache, because OpenLLMetry copies Bedrock's counts. For other
    senders the counts themselves decide later.
    """
    return span.scope.name.endswith(".bedrock")


def provider_rule_with_default(default_provider: str) -> Callable[[str | None, str | None], str | None]:
    return lambda stated, model: stated or default_provider


def has_provider_input_count_excluding_cache(span: Span, provider: str | None, model: str | None) -> bool:
    """Return whether the input count excludes the cache, because the sender copies the provider's counts."""
    return provider in COUNT_CACHE_APART


# --- Vercel's AI SDK, in its own spans and in those that OpenInference rewrites ------------------------------

AI_SDK_OPERATION = "ai.operationId"
_AI_SDK_DETAILS = frozenset(
    f"ai.usage.inputTokenDetails.{name}" for name in ("noCacheTokens", "cacheReadTokens", "cacheWriteTokens")
)


def has_ai_sdk_input_count_excluding_cache(span: Span, provider: str | None, model: str | None) -> bool:
    """
    Return whether the input excludes the cache. Up to version 5, the SDK reports the provider's own input
    count. From version 6 on, the count includes the cache.
    """
    attributes = span.attributes
    if AI_SDK_OPERATION not in attributes or any(name in attributes for name in _AI_SDK_DETAILS):
        return False
    stated = semconv.first_text(attributes, ("ai.model.provider", "gen_ai.system")) or ""
    # with `in`, `vertex.anthropic.messages` matches as well
    return stated.startswith(("anthropic", "amazon-bedrock")) or ".anthropic." in stated


# --- GitHub Copilot's credits: the value of a call by GitHub's price list, not the amount paid ---------------

COPILOT_BEGINNING = "github.copilot."
# Attributes with costs in billionths of a credit, which is their scale in all releases.
_NANO_CREDITS = (f"{COPILOT_BEGINNING}nano_aiu", "copilot_chat.copilot_usage_nano_aiu")
_CREDITS = f"{COPILOT_BEGINNING}aiu"


def set_cost_from_credits(span: Span, call: SpanCall) -> None:
    """
    Set the cost of a call from its credits. The credits of an agent span are the sum of its calls, so they
    are skipped.

    Some releases write credits as `.aiu`, and some write billionths of a credit. A number of unknown scale
    becomes a charge, and the intake finds its scale by the estimate.
    """
    record, attributes = call.record, span.attributes
    name = next((name for name in _NANO_CREDITS if name in attributes), _CREDITS)
    try:
        stated = semconv.parse_amount_if_number(attributes.get(name), name)
    except BadValue:
        return
    if stated is None or record.operation == "invoke_agent":
        return
    if name == _CREDITS:
        record.charges = {UNSCALED_CREDITS: stated}
    else:
        credits = Decimal(stated).scaleb(-9)
        record.cost = decimal_text(credits * CREDIT_DOLLARS)
        tags.put_tag_on_record(record, CREDITS_TAG, decimal_text(credits))
