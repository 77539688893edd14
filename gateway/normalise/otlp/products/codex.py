"""Codex: one event per response and counters per turn. Its spans repeat the events."""

from __future__ import annotations

from decimal import Decimal

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.metric_rules import CACHE_READ, CACHE_WRITE, REASONING
from gateway.normalise.otlp.model import Attributes
from gateway.normalise.otlp.product import (
    MONEY_UNIT,
    LogDialect,
    LogEvent,
    MetricFamily,
    SpanDialect,
    TelemetryProduct,
    TokenNames,
)
from gateway.normalise.otlp.span_rules import no_operation_of_span

# `tool_token_count` is not read: it is the total, which is not needed because input and output are always
# stated.
_TOKENS = TokenNames(
    input=("input_token_count",),
    output=("output_token_count",),
    cache_read=("cached_token_count",),
    cache_write=("cache_write_token_count",),
    reasoning=("reasoning_token_count",),
)
_LOGGED = LogDialect(tokens=_TOKENS, unnamed_provider=lambda attributes, model: "openai")


def _is_completed(attributes: Attributes) -> bool:
    # Codex writes two records per call under this event name. Only one of them has counts.
    if attributes.get("event.kind") != "response.completed":
        return False
    token_counts = (semconv.first_count(attributes, names) for names in (_TOKENS.input, _TOKENS.output))
    return any(count is not None for count in token_counts)


def _has_failed(attributes: Attributes) -> bool:
    status = semconv.first_count(attributes, semconv.HTTP_STATUS)
    return status is not None and status >= 400


PRODUCT = TelemetryProduct(
    source="codex",
    scope_beginnings=("codex",),
    services=("codex_cli_rs", "codex_exec"),
    spans=SpanDialect(operation=no_operation_of_span),
    events={
        "codex.sse_event": LogEvent(dialect=_LOGGED, timed=False, is_call=_is_completed),
        "codex.api_request": LogEvent(dialect=_LOGGED, failed=True, is_call=_has_failed),
        "codex.websocket_request": LogEvent(dialect=_LOGGED, failed=True, is_call=_has_failed),
    },
    event_beginnings=("codex.",),
    no_calls=("codex.conversation_starts", "codex.user_prompt", "codex.tool_decision", "codex.tool_result"),
    metrics={
        "codex.turn.token_usage": MetricFamily(
            type_keys=("token_type",),
            types={
                "cached_input": CACHE_READ,
                "cache_write_input": CACHE_WRITE,
                "reasoning_output": REASONING,
            },
        ),
        "codex.turn.cost_microusd": MetricFamily(unit=MONEY_UNIT, divisor=Decimal(1_000_000)),
    },
)
