"""opencode's plug-in: spans with OpenInference's names, events of the same calls, and counters."""

from __future__ import annotations

import re

from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.metric_rules import (
    CACHE_READ,
    CACHE_WRITE,
    INPUT_UNCACHED,
    OUTPUT_VISIBLE,
    REASONING,
)
from gateway.normalise.otlp.model import Attributes, LogRecord, Span
from gateway.normalise.otlp.product import (
    MONEY_UNIT,
    Links,
    LogDialect,
    LogEvent,
    MetricFamily,
    SpanDialect,
    TelemetryProduct,
    TokenNames,
    accept_everything,
)
from spool.identity import AS_EVENT, AS_SPAN, links_by_session_and_end_time
from spool.record import Inference

SOURCE = "opencode"
_PREFIX = "opencode."
_SESSION_TOTAL = re.compile(r"opencode\.session\..*\.total")
_REQUEST, _ERROR = "opencode.api_request", "opencode.api_error"
_EVENTS = {"api_request": _REQUEST, "api_error": _ERROR}


def _event_name_with_prefix(record: LogRecord, name: str, source: str) -> str:
    """Return the full event name. Other senders use the same short names."""
    return _EVENTS.get(name, name) if source == SOURCE else name


# Neither spans nor events have a call id. They are matched by session, model, counts and end time.
_LOGGED = LogDialect(
    provider=("provider",),
    tokens=TokenNames(
        input=("input_tokens",),
        output=("output_tokens",),
        cache_read=("cache_read_tokens",),
        cache_write=("cache_creation_tokens",),
        reasoning=("reasoning_tokens",),
    ),
    without_cache=accept_everything,
    without_reasoning=True,
)


def _dedup_links_to_span(attributes: Attributes, call: Inference) -> Links:
    return links_by_session_and_end_time(call, own_report_kind=AS_EVENT, other_report_kind=AS_SPAN)


def _mark_as_also_logged(span: Span, call: SpanCall) -> None:
    call.is_logged = True


def _metric_name_with_default_prefix(name: str) -> str:
    """
    Return the metric name with the default prefix. `OPENCODE_METRIC_PREFIX` sets another, often Claude
    Code's.
    """
    if name.startswith(_PREFIX):
        return name
    whole = (_PREFIX + name[begin:] for begin in range(len(name)))
    return next(
        (candidate for candidate in whole if candidate in _METRICS or _SESSION_TOTAL.fullmatch(candidate)),
        name,
    )


_METRICS = {
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
}

PRODUCT = TelemetryProduct(
    source=SOURCE,
    scopes=("com.opencode",),
    scopes_above_marks=True,
    tags={"agent": ("agent",)},
    spans=SpanDialect(refine=_mark_as_also_logged),
    events={
        _REQUEST: LogEvent(dialect=_LOGGED, links=_dedup_links_to_span),
        _ERROR: LogEvent(dialect=_LOGGED, failed=True, links=_dedup_links_to_span),
    },
    event_name=_event_name_with_prefix,
    metrics=_METRICS,
    repeated_metrics=(_SESSION_TOTAL.pattern,),
    metric_name=_metric_name_with_default_prefix,
)
