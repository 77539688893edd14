"""
OpenTelemetry's GenAI conventions as a product. Their rules read telemetry of unknown senders, and other
products share them.
"""

from __future__ import annotations

from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.metric_rules import CACHE_READ, CACHE_WRITE, INPUT, OUTPUT, REASONING, TOTAL
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import (
    MONEY_UNIT,
    KindAttribute,
    LogDialect,
    MetricFamily,
    RefineCall,
    SpanFields,
    TelemetryProduct,
    TokenNames,
)
from gateway.normalise.otlp.usage_objects import parse_response_fields, parse_usage_counts
from gateway.normalise.reading.token_metrics import DRAFT, OPERATION, TOKEN_USAGE, USAGE
from gateway.normalise.reading.values import MAX_TOKENS, BadValue
from spool.caches import cache_by_text
from spool.identity import dedup_key_of_span

LOGGED = LogDialect(
    model=semconv.REQUEST_MODEL,
    response_model=semconv.RESPONSE_MODEL,
    provider=semconv.PROVIDER,
    tokens=TokenNames(
        input=semconv.INPUT,
        output=semconv.OUTPUT,
        cache_read=semconv.CACHE_READ,
        cache_write=semconv.CACHE_WRITE,
        reasoning=semconv.REASONING,
    ),
    total=semconv.TOTAL,
    response_id=semconv.RESPONSE_ID,
    shared_id=semconv.SHARED_ID,
    own_span=True,
)
_STEPS = frozenset(
    {
        "execute_tool",
        "invoke_agent",
        "create_agent",
        "agent_step",
        "invoke_workflow",
        "tool",
        "agent",
        "handle_conversation_turn",
    }
)
_COST = MetricFamily(unit=MONEY_UNIT)
_TYPES = {
    "prompt": INPUT,
    "completion": OUTPUT,
    # attribute names of Envoy AI Gateway and others; their tokens are part of the input or the output, so
    # they are never added
    "cached_input": CACHE_READ,
    "cached": CACHE_READ,
    "cache_read_input": CACHE_READ,
    "cache_creation_input": CACHE_WRITE,
    "cache_creation": CACHE_WRITE,
    "cache_write_input": CACHE_WRITE,
    "reasoning_output": REASONING,
}
_USAGE_TYPES = {
    "input_tokens": INPUT,
    "output_tokens": OUTPUT,
    "cache_read.input_tokens": CACHE_READ,
    "cache_write.input_tokens": CACHE_WRITE,
    "cache_creation.input_tokens": CACHE_WRITE,
    "reasoning.output_tokens": REASONING,
}


def _mark_as_call_of_sdk(span: Span, call: SpanCall) -> None:
    call.is_of_sdk = call.is_of_provider = True


def _add_compaction_tokens(span: Span, call: SpanCall) -> None:
    """
    Add the tokens of context compactions. Anthropic states them apart from the message's usage, and bills
    them.
    """
    attributes = span.attributes
    if _COMPACTION_IN in attributes or _COMPACTION_OUT in attributes:
        try:
            more = [
                semconv.parse_count_if_number(attributes.get(name), name) or 0
                for name in (_COMPACTION_IN, _COMPACTION_OUT)
            ]
        except BadValue:
            return
        tokens = call.tokens
        counts = [(tokens.input or 0) + more[0], (tokens.output or 0) + more[1]]
        if any(more) and max(counts) <= MAX_TOKENS:
            call.replace_counts(tokens._replace(input=counts[0], output=counts[1]))


def _add_dedup_key_of_span_id(span: Span, call: SpanCall) -> None:
    """
    Add a dedup key of the span's trace and span id. The call's events carry these ids, but may omit the
    response id.
    """
    if call.response_id is not None and span.trace_id is not None and span.span_id is not None:
        call.also += (dedup_key_of_span(span.trace_id, span.span_id),)


_COMPACTION_IN, _COMPACTION_OUT = (f"anthropic.usage.compaction.{end}_tokens" for end in ("input", "output"))

# by prefix of the scope: a word in the names of the models of this SDK
SDKS: dict[str, str] = {"com.anthropic.sdk.": "claude"}


@cache_by_text(2048)
def is_model_of_vendor_sdk(model: str) -> bool:
    return any(word in model.lower() for word in SDKS.values())


def _mark_as_reported_elsewhere(span: Span, call: SpanCall) -> None:
    call.is_beside = True


# Functions that refine a call, by the prefix of its scope. They apply even if the span has the marks of a
# product.
SENT_UNDER: tuple[tuple[str, RefineCall], ...] = (
    ("com.anthropic.", _add_compaction_tokens),
    *[(scope, _mark_as_call_of_sdk) for scope in SDKS],
    ("opentelemetry.instrumentation.genai", _add_dedup_key_of_span_id),
    ("langfuse-sdk", _mark_as_reported_elsewhere),
)

# Attribute that Anthropic's own libraries write, even inside the spans of another product.
_ONE_HOUR = "anthropic.usage.cache_creation.ephemeral_1h_input_tokens"


def _one_hour_cache_write_field(value: Any) -> SpanFields:
    return {"cache_write_1h": value}


OTEL = TelemetryProduct(
    source="otel",
    containers={_ONE_HOUR: _one_hour_cache_write_field},
    texts={
        # names of tools that copy a provider's usage object or response
        **dict.fromkeys(("gen_ai.usage.raw", "gen_ai.usage", "llm.usage", "usage"), parse_usage_counts),
        **dict.fromkeys(
            ("output.value", "gen_ai.completion", "gen_ai.output.messages"), parse_response_fields
        ),
    },
    kinds=(
        KindAttribute(attribute="gen_ai.operation.name", around=_STEPS),
        KindAttribute(attribute="gen_ai.span.kind"),
    ),
    details=LOGGED,
    event_beginnings=("gen_ai.",),
    no_calls=(
        "gen_ai.system.message",
        "gen_ai.user.message",
        "gen_ai.assistant.message",
        "gen_ai.tool.message",
        "gen_ai.choice",
        "gen_ai.evaluation.result",
        "gen_ai.client.operation.exception",
    ),
    metrics={
        TOKEN_USAGE: MetricFamily(type_keys=("gen_ai.token.type",), types=_TYPES, one_of=TOKEN_USAGE),
        **{
            f"{USAGE}{name}": MetricFamily(token_type=type, one_of=USAGE)
            for name, type in _USAGE_TYPES.items()
        },
        # the same tokens by call; they count only if a meter sends no counters
        f"{OPERATION}input_tokens": MetricFamily(token_type=INPUT, one_of=OPERATION, is_last=True),
        f"{OPERATION}output_tokens": MetricFamily(token_type=OUTPUT, one_of=OPERATION, is_last=True),
        f"{DRAFT}tokens": MetricFamily(type_keys=("gen_ai.token.type",), types=_TYPES, one_of=DRAFT),
        f"{DRAFT}input_tokens_by_cache": MetricFamily(
            type_keys=("gen_ai.token.cache",),
            types={"none": TOTAL, "read": CACHE_READ, "creation": CACHE_WRITE},
            one_of=DRAFT,
        ),
        f"{DRAFT}output_tokens_by_phase": MetricFamily(
            type_keys=("gen_ai.token.phase",), types={"response": TOTAL, "reasoning": REASONING}, one_of=DRAFT
        ),
        "gen_ai.client.operation.cost": _COST,
        "gen_ai.client.token.cost": _COST,
        "gen_ai.usage.cost": _COST,
        "operation.cost": _COST,
    },
    repeated_metrics=(r"gen_ai\.client\.inference\.operation\..*", r"gen_ai\.prompt_caching"),
)
