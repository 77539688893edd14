"""
A Logfire stream with the SDK's span below it: Logfire's report of the stream is a trace of its own, in any request.
"""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from tests.gateway.normalise.otlp.items import SECOND
from tests.gateway.normalise.otlp.payloads import span
from tests.integration.order.running import Request, Row, told_in_memory, told_on_disk
from tests.spool.contract.examples import NOON

LOGFIRE, SDK = "logfire.anthropic", "com.anthropic.sdk.python"
MODEL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-haiku-4-5"}
USED = {"gen_ai.usage.input_tokens": 610, "gen_ai.usage.output_tokens": 33}
Spans = list[tuple[str, dict[str, Any]]]  # spans with the names of their scopes


def stream(number: int, end_s: float, **counts: int) -> dict[str, Spans]:
    """Return the span that begins a stream, the SDK's span below it, and the report about the stream."""
    end, used = int((NOON + end_s) * SECOND), USED | {f"gen_ai.usage.{name}": n for name, n in counts.items()}
    begins = {**MODEL, "logfire.span_type": "span", "request_data": json.dumps({"stream": True})}
    below = {**MODEL, **used, "gen_ai.response.id": f"msg_1111222233334444aa{number:02}"}
    report = {**MODEL, **used, "logfire.span_type": "log", "duration": 1.0}
    ours, apart = {"traceId": f"{2 * number:032x}"}, {"traceId": f"{2 * number + 1:032x}"}
    first, at, name = (
        10 * number,
        {"start": end - SECOND, "end": end},
        "streaming response from claude took 1s",
    )
    return {
        "begins": [(LOGFIRE, span(first, begins, start=end - 2 * SECOND, end=end - SECOND, **ours))],
        "below": [(SDK, span(first + 1, below, parent=first, **at, **ours))],
        "report": [
            (LOGFIRE, span(first + 2, report, start=end + 10**6, end=end + 10**6, name=name, **apart))
        ],
    }


def request(spans: Spans) -> Request:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "desk"}}]}
    scopes = [{"scope": {"name": scope}, "spans": [one]} for scope, one in spans]
    return Request(
        "otlp/traces", json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}).encode()
    )


def counted(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row["shadow"]]


def test_a_stream_is_one_call_however_its_spans_are_cut() -> None:
    """
    A stream is one call, however its spans are divided: they arrive in one, two or three requests, in every order,
    each twice.
    """
    spans = stream(1, 1)
    parts = [[["begins", "below", "report"]], [["begins"], ["below"], ["report"]]]
    parts += [[[one], [name for name in spans if name != one]] for one in spans]
    for part in parts:
        for order in permutations(part):
            requests = [request([one for name in names for one in spans[name]]) for names in order]
            found = [told_in_memory(requests)[0]]
            if order == tuple(part)[::-1]:
                found.append(told_on_disk([*requests, *requests], [True])[0])
            for rows in found:
                ids = [(row["request_id"], row["input_tokens"]) for row in counted(rows)]
                assert [("msg_1111222233334444aa01", 610)] == ids, order


def test_stream_also_reported_by_the_gateway_is_one_call() -> None:
    """
    A stream that the client, the SDK and the gateway report is one call. The gateway's log and the SDK's span have
    the id of the answer, and neither shares an id with the report about the stream.
    """
    spans = stream(1, 1)
    told = {
        "id": "msg_1111222233334444aa01", "call_type": "anthropic_messages", "model": "claude-haiku-4-5",
        "status": "success", "prompt_tokens": 610, "completion_tokens": 33, "startTime": NOON, "endTime": NOON + 1,
    }  # fmt: skip
    log = Request("litellm", json.dumps(told).encode())
    for order in permutations([log, request(spans["below"]), request(spans["report"])]):
        assert 1 == len(counted(told_in_memory(order)[0]))


# After 3.9995 s, the second stream's report ends in the next time step.
@pytest.mark.parametrize("end_s", [1.0, 3.9995])
def test_two_equal_streams_are_never_one(end_s: float) -> None:
    """
    Two equal streams within 8 s may leave a report separate (docs/promises/ordering.md). Streams with different
    counts never join.
    """
    two = [stream(1, end_s), stream(2, end_s + 5)]
    for order in permutations([spans[name] for spans in two for name in ("below", "report")]):
        found = len(counted(told_in_memory([request(one) for one in order])[0]))
        assert found == 2 if end_s == 1.0 else found >= 2
    other = [stream(1, end_s), stream(2, end_s + 5, output_tokens=34)]
    for order in permutations([spans[name] for spans in other for name in ("below", "report")]):
        assert 2 == len(counted(told_in_memory([request(one) for one in order])[0]))


def test_the_sdks_span_alone_is_one_call() -> None:
    """An abandoned stream has no report, so the SDK's span is the call."""
    spans = stream(1, 1)
    for requests in ([spans["begins"], spans["below"]], [spans["below"]]):
        assert 1 == len(told_in_memory([request(one) for one in requests])[0])
