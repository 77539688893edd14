"""opencode's plug-in reports each call by a span, an event and counters. In any order it is one call."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import attribute, span, traces
from tests.integration.order.running import Request, Row, told_in_every_order, told_in_memory

SCOPE = "com.opencode"
RESOURCE = {"service.name": "opencode"}


def as_span(number: int = 1, *, end: int = NOW + SECOND, **said: Any) -> Request:
    attributes = {
        "openinference.span.kind": "LLM", "llm.model_name": "claude-sonnet-5", "session.id": "s-1",
        "llm.token_count.prompt": 100, "llm.token_count.completion": 20, "llm.token_count.total": 1100,
        "llm.token_count.prompt_details.cache_read": 900, "llm.cost.total": 0.0123,
        "llm.token_count.prompt_details.cache_write": 50, "llm.token_count.completion_details.reasoning": 30,
        **said,
    }  # fmt: skip
    payload = traces(span(number, attributes, name="opencode.llm", end=end), scope=SCOPE, resource=RESOURCE)
    return Request("otlp/traces", json.dumps(payload).encode())


def as_event(*, name: str = "api_request", at: int = NOW + SECOND, **said: Any) -> Request:
    attributes = {
        "event.name": name, "model": "claude-sonnet-5", "provider": "anthropic", "agent": "build", "session.id": "s-1",
        "cost_usd": 0.0123, "duration_ms": 1000, "input_tokens": 100, "output_tokens": 20, "reasoning_tokens": 30,
        "cache_read_tokens": 900, "cache_creation_tokens": 50, **said,
    }  # fmt: skip
    record = {
        "timeUnixNano": str(at),
        "attributes": [attribute(key, value) for key, value in attributes.items() if value is not None],
    }
    resource = {"attributes": [attribute("service.name", "opencode")]}
    scopes = [{"scope": {"name": SCOPE}, "logRecords": [record]}]
    return Request(
        "otlp/logs", json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": scopes}]}).encode()
    )


def counter(value: int, type: str, *, prefix: str) -> Request:
    said = {"type": type, "model": "claude-sonnet-5", "session.id": "s-1"}
    point = {
        "attributes": [attribute(key, text) for key, text in said.items()],
        "startTimeUnixNano": str(NOW), "timeUnixNano": str(NOW + SECOND), "asInt": str(value),
    }  # fmt: skip
    sum_ = {"aggregationTemporality": 1, "isMonotonic": True, "dataPoints": [point]}
    metrics = [
        {
            "scope": {"name": SCOPE},
            "metrics": [{"name": f"{prefix}.token.usage", "unit": "tokens", "sum": sum_}],
        }
    ]
    resource = {"attributes": [attribute("service.name", "opencode")]}
    body = {"resourceMetrics": [{"resource": resource, "scopeMetrics": metrics}]}
    return Request("otlp/metrics", json.dumps(body).encode())


def every_order(*requests: Request) -> list[list[Row]]:
    """Return the calls for every order, with each request sent twice and stops in between."""
    return [[row for row in rows if row["kind"] == "inference"] for rows, _ in told_in_every_order(requests)]


@pytest.mark.parametrize("ms_later", [0, 40, 3000])
def test_a_span_and_an_event_are_one_call(ms_later: int) -> None:
    """
    opencode's span and its event are one call. Both state sums without cached and reasoning tokens, so these are
    added. The event may state a slightly later end.
    """
    for rows in every_order(as_span(), as_event(at=NOW + SECOND + ms_later * 1_000_000)):
        assert [("opencode", 1050, 50, 900, 50, 30, "0.0123", "build")] == [
            (
                row["source"], row["input_tokens"], row["output_tokens"], row["cache_read_tokens"],
                row["cache_write_tokens"], row["reasoning_tokens"], row["cost"], row["tags"].get("agent"),
            )
            for row in rows
        ]  # fmt: skip


def test_events_alone_are_the_calls() -> None:
    """If the plug-in's traces are switched off, each event is a call."""
    error = as_event(
        name="api_error", at=NOW + 9 * SECOND, input_tokens=None, output_tokens=None, cost_usd=None
    )
    for rows in every_order(as_event(), error):
        assert ["error", "ok"] == sorted(row["status"] for row in rows)


def test_two_calls_that_differ_in_a_count_are_two() -> None:
    """
    Two calls start at the same moment and differ in one token count. Each has its event, and they stay two calls.
    """
    other = {"llm.token_count.completion": 21, "llm.token_count.total": 1101}
    for order in permutations([as_span(1), as_span(2, **other), as_event(), as_event(output_tokens=21)]):
        rows, _ = told_in_memory(order)
        assert [50, 51] == sorted(row["output_tokens"] for row in rows)


def test_two_spans_alike_are_two() -> None:
    """Spans have their own ids, so a name that they share with events never joins two spans."""
    rows, _ = told_in_memory([as_span(1), as_span(2), as_span(1)])
    assert 2 == len(rows)


@pytest.mark.parametrize("prefix", ["opencode", "claude_code"])
def test_counters_repeat_them(prefix: str) -> None:
    """
    Counters of opencode's plug-in repeat its calls, under the default prefix or one that the user chose. They
    arrive before or after the calls.
    """
    told = [counter(100, "input", prefix=prefix), counter(20, "output", prefix=prefix), as_span()]
    for order in permutations(told):
        rows, _ = told_in_memory(order)
        assert [True, True] == [row["shadow"] for row in rows if row["kind"] == "usage_metric"]
