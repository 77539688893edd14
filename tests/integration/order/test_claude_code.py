"""
Claude Code's events about the end of a call or a prompt that other reports include as well: in any order,
each is one call.
"""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import attribute, span, traces
from tests.integration.order.running import Request, Row, told_in_every_order, told_in_memory, told_on_disk

BILLED = "req_011CAbCdEfGhIjKlMnOp"


def event(name: str, **said: Any) -> Request:
    said = {"event.name": name, "session.id": "s-1", "prompt.id": "p-1", "model": "claude-sonnet-5", **said}
    record = {
        "timeUnixNano": str(NOW + said.pop("at", 1) * SECOND),
        "body": {"stringValue": f"claude_code.{name}"},
        "attributes": [attribute(key, value) for key, value in {**said}.items()],
    }
    resource = {"attributes": [attribute("service.name", "claude-code")]}
    scopes = [{"scope": {"name": "com.anthropic.claude_code.events"}, "logRecords": [record]}]
    return Request(
        "otlp/logs", json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": scopes}]}).encode()
    )


SPAN = Request(
    "otlp/traces",
    json.dumps(
        traces(
            span(1, {"span.type": "llm_request", "model": "claude-sonnet-5", "request_id": BILLED,
                     "input_tokens": 40, "output_tokens": 3}),
            scope="com.anthropic.claude_code", resource={"service.name": "claude-code"},
        )
    ).encode(),
)  # fmt: skip


def every_order(*requests: Request) -> list[list[Row]]:
    """Return the records for every order, with each request sent twice and stops in between."""
    return [rows for rows, _ in told_in_every_order(requests)]


def test_a_refused_call_keeps_its_tokens() -> None:
    """A call that the provider refused is an error, and keeps its tokens and cost, because it was billed."""
    request = event("api_request", request_id=BILLED, input_tokens=40, output_tokens=3, cost_usd=0.01)
    for rows in every_order(request, event("api_refusal", request_id=BILLED)):
        assert [("error", "refusal", 40, "0.01")] == [
            (row["status"], row["error_type"], row["input_tokens"], row["cost"]) for row in rows
        ]


def test_a_request_after_its_refusal_was_closed_keeps_its_tokens() -> None:
    """
    If the event or the span of a refused call arrives after the record of its refusal was closed, each of them
    twice, the call is one record next to that of the refusal. It keeps its tokens, and the refusal also applies to
    it.
    """
    request = event("api_request", request_id=BILLED, input_tokens=40, output_tokens=3, cost_usd=0.01)
    refusal = event("api_refusal", request_id=BILLED)
    for calls in permutations((request, SPAN)):
        told = [refusal, *calls, *calls, refusal]
        for rows, conflicts in (told_in_memory(told, [60]), told_on_disk(told, [True], [60])):
            calls_told = [row for row in rows if row["kind"] == "inference"]
            assert len(calls_told) == 2
            assert conflicts == 0
            assert {None, 40} == {row["input_tokens"] for row in calls_told}
        found = [row for row in told_in_memory(told, [60])[0] if row["kind"] == "inference"]
        late, alone = sorted(found, key=lambda row: row["input_tokens"] is None)
        assert ["refusal"] * 2 == [late["error_type"], alone["error_type"]]


def test_refusal_and_span_report_one_call() -> None:
    """A refusal and a span report the same call, but only the refusal knows how the call ended."""
    request = event("api_request", request_id=BILLED, input_tokens=40, output_tokens=3, cost_usd=0.01)
    for rows in every_order(request, event("api_refusal", request_id=BILLED), SPAN):
        assert [("error", "refusal", 40, "0.01")] == [
            (row["status"], row["error_type"], row["input_tokens"], row["cost"]) for row in rows
        ]


def test_the_end_of_retries_is_the_error_of_its_prompt() -> None:
    """
    The event about the end of the retries is the error of its prompt. Further errors of the prompt
    are separate calls.
    """
    errors = [event("api_error", status_code=529, at=at, **{"event.sequence": at}) for at in (1, 2)]
    exhausted = event("api_retries_exhausted", status_code=529, total_attempts=11, at=3)
    for rows in every_order(errors[0], exhausted):
        assert ["529"] == [row["error_type"] for row in rows]
    for rows in every_order(*errors, exhausted):
        assert ["529"] * 2 == [row["error_type"] for row in rows]


def test_the_end_of_retries_alone_is_an_error() -> None:
    """
    If the events of the single errors were lost, the event about the end of the retries becomes an error record.
    """
    (rows, *_) = every_order(event("api_retries_exhausted", status_code=529))
    assert ["error"] == [row["status"] for row in rows]
