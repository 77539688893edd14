"""Qwen Code: one event per call and a token counter. Its spans repeat the events."""

from __future__ import annotations

import re

from gateway.normalise.otlp.metric_rules import CACHE_READ, REASONING, TOOL_INPUT
from gateway.normalise.otlp.model import Attributes
from gateway.normalise.otlp.product import (
    LogDialect,
    LogEvent,
    MetricFamily,
    SpanDialect,
    TelemetryProduct,
    TokenNames,
)
from gateway.normalise.otlp.span_rules import no_operation_of_span
from gateway.normalise.reading import values
from spool.record import Inference

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

# matches a prompt id: session, run of the sub-agent, and number of the turn
_PROMPT_OF_AGENT = re.compile(r"[^#]+#([^#]+)#\d+")


def _fill_run_of_sub_agent(attributes: Attributes, call: Inference) -> None:
    """
    Fill in the run of a sub-agent, which is a part of its prompt's id. A sub-agent starts no sub-agents.
    """
    prompt = values.text_or_none(attributes.get("prompt_id"))
    if prompt is not None and (found := _PROMPT_OF_AGENT.fullmatch(prompt)) is not None:
        call.run = found[1]


PRODUCT = TelemetryProduct(
    source="qwen_code",
    scopes=("qwen-code",),
    services=("qwen-code",),
    spans=SpanDialect(operation=no_operation_of_span),
    events={
        "qwen-code.api_response": LogEvent(dialect=_LOGGED, refine=_fill_run_of_sub_agent),
        "qwen-code.api_error": LogEvent(dialect=_LOGGED, failed=True, refine=_fill_run_of_sub_agent),
    },
    tags={"agent": ("subagent_name",)},
    event_beginnings=("qwen-code.",),
    # Events that only sum up calls, which other events report.
    no_calls=("qwen-code.chat_compression", "qwen-code.arena_agent_completed", "qwen-code.workflow_run"),
    metrics={
        "qwen-code.token.usage": MetricFamily(
            type_keys=("type",), types={"thought": REASONING, "cache": CACHE_READ, "tool": TOOL_INPUT}
        )
    },
    repeated_metrics=(r"qwen-code\.token\.(efficiency|breakdown).*", r"qwen-code\.arena\.agent\.tokens"),
    repeats_token_usage=True,
)
