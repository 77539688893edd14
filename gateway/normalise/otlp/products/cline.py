"""Cline: one event per conversation turn, and counters of tokens and cost."""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.metric_rules import CACHE_READ, CACHE_WRITE, INPUT_UNCACHED, OUTPUT
from gateway.normalise.otlp.model import Attributes
from gateway.normalise.otlp.product import (
    MONEY_UNIT,
    LogDialect,
    LogEvent,
    MetricFamily,
    TelemetryProduct,
    TokenNames,
    accept_everything,
)

_LOGGED = LogDialect(
    provider=("provider",),
    tokens=TokenNames(
        input=("tokensIn",),
        output=("tokensOut",),
        cache_read=("cacheReadTokens",),
        cache_write=("cacheWriteTokens",),
    ),
    without_cache=accept_everything,
)


def _has_input_count(attributes: Attributes) -> bool:
    return semconv.first_count(attributes, _LOGGED.tokens.input) is not None


PRODUCT = TelemetryProduct(
    source="cline",
    scopes=("cline",),
    services=("cline",),
    own_names={"user": ("user_id",), "email": ("email",), "session": ("ulid",)},
    tags={"organization": ("organization_id",), "device": ("distinct_id",)},
    names={"cost": ("totalCost",)},
    names_spans=False,
    events={"task.conversation_turn": LogEvent(dialect=_LOGGED, is_call=_has_input_count)},
    event_beginnings=("task.",),
    no_calls=("task.tokens", "task.summarize_task"),
    metrics={
        "cline.tokens.input.total": MetricFamily(token_type=INPUT_UNCACHED),
        "cline.tokens.output.total": MetricFamily(token_type=OUTPUT),
        "cline.cache.read.tokens.total": MetricFamily(token_type=CACHE_READ),
        "cline.cache.write.tokens.total": MetricFamily(token_type=CACHE_WRITE),
        "cline.cost.total": MetricFamily(unit=MONEY_UNIT),
    },
    repeated_metrics=(r"cline\..*\.per_(response|event)",),
)
