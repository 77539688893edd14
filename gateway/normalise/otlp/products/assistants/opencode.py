"""opencode's plug-in: spans with OpenInference's names, events of the same calls, and counters beside them."""

from __future__ import annotations

from gateway.normalise.otlp.metrics.token_types import (
    CACHE_READ,
    CACHE_WRITE,
    INPUT_UNCACHED,
    OUTPUT_VISIBLE,
    REASONING,
)
from gateway.normalise.otlp.model import LogRecord
from gateway.normalise.otlp.product import (
    MONEY_UNIT,
    LogDialect,
    LogEvent,
    MetricFamily,
    Product,
    SpanDialect,
    TokenNames,
)

SOURCE = "opencode"
_REQUEST, _ERROR = "opencode.api_request", "opencode.api_error"
_EVENTS = {"api_request": _REQUEST, "api_error": _ERROR}


def _whole_event_name(record: LogRecord, name: str, source: str) -> str:
    """Others have events of these names, too."""
    return _EVENTS.get(name, name) if source == SOURCE else name


# Neither spans nor events have an id of the call: they meet by session, model, counts and end.
_LOGGED = LogDialect(
    provider=("provider",),
    tokens=TokenNames(
        input=("input_tokens",),
        output=("output_tokens",),
        cache_read=("cache_read_tokens",),
        cache_write=("cache_creation_tokens",),
        reasoning=("reasoning_tokens",),
    ),
    without_cache=True,
    without_reasoning=True,
    repeats_spans=True,
)

PRODUCT = Product(
    source=SOURCE,
    scopes=("com.opencode",),
    scopes_above_marks=True,
    tags={"agent": ("agent",)},
    spans=SpanDialect(logged=True),
    events={_REQUEST: LogEvent(dialect=_LOGGED), _ERROR: LogEvent(dialect=_LOGGED, failed=True)},
    event_name=_whole_event_name,
    metrics={
        "opencode.token.usage": MetricFamily(
            type_keys=("type",),
            types={
                "input": INPUT_UNCACHED,
                "output": OUTPUT_VISIBLE,
                "reasoning": REASONING,
                "cacheRead": CACHE_READ,
                "cacheCreation": CACHE_WRITE,
            },
        ),
        "opencode.cost.usage": MetricFamily(unit=MONEY_UNIT),
    },
    repeated_metrics=(r"opencode\.session\..*\.total",),
    metric_beginning="opencode.",  # else `OPENCODE_METRIC_PREFIX`, for which Claude Code's is proposed
)
