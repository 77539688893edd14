"""Qwen Code: one event per call and a token counter. Its spans repeat the events."""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import CACHE_READ, REASONING, TOOL_INPUT
from gateway.normalise.otlp.product import (
    LogDialect,
    LogEvent,
    MetricFamily,
    Product,
    SpanDialect,
    TokenNames,
)
from gateway.normalise.otlp.span_rules import never

_LOGGED = LogDialect(
    tokens=TokenNames(
        input=("input_token_count",),
        output=("output_token_count",),
        cache_read=("cached_content_token_count",),
        reasoning=("thoughts_token_count",),
    ),
    total=("total_token_count",),
    response_id=("response_id",),
)

PRODUCT = Product(
    source="qwen_code",
    scopes=("qwen-code",),
    services=("qwen-code",),
    spans=SpanDialect(operation=never),
    events={
        "qwen-code.api_response": LogEvent(dialect=_LOGGED),
        "qwen-code.api_error": LogEvent(dialect=_LOGGED, failed=True),
    },
    tags={"agent": ("subagent_name",)},
    event_beginnings=("qwen-code.",),
    # These events only sum up calls, which other events report.
    no_calls=("qwen-code.chat_compression", "qwen-code.arena_agent_completed", "qwen-code.workflow_run"),
    metrics={
        "qwen-code.token.usage": MetricFamily(
            type_keys=("type",),
            types={"thought": REASONING, "cache": CACHE_READ, "tool": TOOL_INPUT},
        ),
    },
    repeated_metrics=(r"qwen-code\.token\.(efficiency|breakdown).*", r"qwen-code\.arena\.agent\.tokens"),
    repeats_token_usage=True,
)
