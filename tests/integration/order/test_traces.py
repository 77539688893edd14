"""
Calls that a client and the gateway behind it both report by spans of one trace, without a common id. In any
order and with restarts, one call is one record, and two calls are never joined.
"""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.gateway.normalise.otlp.items import SECOND
from tests.gateway.normalise.otlp.payloads import span
from tests.integration.order.running import (
    ORDERS,
    SEED,
    Request,
    Row,
    cut,
    is_on_disk,
    told_in_memory,
    told_on_disk,
)
from tests.rounds import part
from tests.spool.contract.examples import NOON

START = NOON * SECOND
HTTP = {"http.request.method": "POST"}
LLM = {"openinference.span.kind": "LLM", "llm.model_name": "toll-1"}
SDK = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "toll-1"}
PROXY = {"gen_ai.operation.name": "acompletion", "gen_ai.system": "openai", "gen_ai.request.model": "toll-1"}
FAILED: dict[str, Any] = {"status": {"code": 2}}
USED: dict[str, Any] = {"gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 7}
SCOPES = {
    "application": "shop", "openinference": "openinference.instrumentation.openai",
    "sdk": "opentelemetry.instrumentation.openai_v2", "http": "opentelemetry.instrumentation.httpx",
    "litellm": "litellm",
}  # fmt: skip

Spans = list[tuple[str, dict[str, Any]]]  # spans with the names of their scopes


def made(
    number: int, sender: str, attributes: dict[str, Any], at_s: float, long_s: float, **more: Any
) -> Any:
    start = START + int(at_s * SECOND)
    return sender, span(number, attributes, start=start, end=start + int(long_s * SECOND), **more)


def client(number: int, *, attempts: int, traces_http: bool, wraps: bool, answered: bool = False) -> Spans:
    """
    Return the spans of a client's call with some attempts: a library's spans, and the spans of its SDK and
    HTTP client below.
    """
    at, name = number * 100.0, number * 100
    inner = name + wraps
    end = {} if answered else FAILED
    tokens = {"llm.token_count.prompt": 30, "llm.token_count.completion": 7} if answered else {}
    spans = [made(name, "openinference", LLM | tokens, at, 9, parent=1, **end)]
    if wraps:
        spans.append(made(inner, "sdk", SDK | (USED if answered else {}), at, 8.9, parent=name, **end))
    if traces_http:
        for attempt in range(1, attempts + 1):
            spans.append(made(name + 10 + attempt, "http", HTTP, at + 2 * attempt, 1, parent=inner))
    return spans


def gateway(number: int, attempt: int, *, traces_http: bool, wraps: bool, answered: bool = False) -> Spans:
    """Return the spans of an attempt as LiteLLM reports it, including the forwarded request."""
    end, used = ({}, USED) if answered else (FAILED, {})
    at, name = number * 100 + 2.0 * attempt, number * 100 + 20 + 5 * attempt
    parent = number * 100 + (10 + attempt if traces_http else wraps)
    call_id = {"litellm.call_id": f"00000000-0000-4000-8000-{name:012d}"}
    return [
        made(name, "litellm", HTTP, at + 0.1, 0.9, parent=parent, name="Received Proxy Server Request"),
        made(name + 1, "litellm", PROXY | call_id | used, at + 0.2, 0.7, parent=name, **end),
        made(name + 2, "http", HTTP, at + 0.3, 0.5, parent=name + 1),
    ]


def log(number: int, attempt: int) -> Request:
    """Return LiteLLM's log of the same failed attempt, with the start time of its span to the microsecond."""
    name, at = number * 100 + 20 + 5 * attempt, number * 100 + 2.0 * attempt + 0.2
    said = {
        "id": f"00000000-0000-4000-8000-{name:012d}", "litellm_call_id": f"00000000-0000-4000-8000-{name:012d}",
        "trace_id": f"{1:032x}", "call_type": "acompletion", "status": "failure", "model": "toll-1",
        "custom_llm_provider": "openai", "startTime": NOON + at, "endTime": NOON + at + 0.7,
        "error_information": {"error_class": "RateLimitError"},
    }  # fmt: skip
    return Request("litellm", json.dumps(said).encode())


def request(spans: Spans) -> Request:
    resources = []
    for scope, one in spans:
        service = {
            "key": "service.name",
            "value": {"stringValue": "litellm" if scope == "litellm" else "shop"},
        }
        scoped = [{"scope": {"name": SCOPES[scope]}, "spans": [one]}]
        resources.append({"resource": {"attributes": [service]}, "scopeSpans": scoped})
    return Request("otlp/traces", json.dumps({"resourceSpans": resources}).encode())


def calls_of(rows: list[Row]) -> list[tuple[int, int]]:
    """Return for each client call the number of failed and of answered attempts."""
    ends = [(int(row["span_id"], 16) // 100, row["status"]) for row in rows if not row["shadow"]]
    return [
        (ends.count((number, "error")), ends.count((number, "ok")))
        for number in sorted({of for of, _ in ends})
    ]


@seed(SEED)
@settings(max_examples=ORDERS * 6, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(data=st.data(), traces_http=st.booleans(), wraps=st.booleans())
def test_client_and_gateway_in_any_order(data: st.DataObject, traces_http: bool, wraps: bool) -> None:
    """The number of calls equals the attempts that the gateway reports, whichever spans arrive first."""
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    calls = data.draw(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=3))
    pieces: list[Spans | Request] = [[made(1, "application", {}, 0, 900)]]
    for number, (count, answered) in enumerate(calls, start=1):
        how = {"traces_http": traces_http, "wraps": wraps}
        pieces.append(client(number, attempts=count, answered=answered, **how))
        for attempt in range(1, count + 1):
            pieces.append(gateway(number, attempt, answered=answered and attempt == count, **how))
            if not (answered and attempt == count) and data.draw(st.booleans()):
                pieces.append(log(number, attempt))
    order = data.draw(st.permutations(pieces))
    cuts = data.draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
    requests = []
    for group in cut(order, cuts):
        requests += [piece for piece in group if isinstance(piece, Request)]
        if spans := [one for piece in group if not isinstance(piece, Request) for one in piece]:
            requests.append(request(spans))
    restarts = data.draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
    rows, _ = told_in_memory(requests)
    assert [(count - answered, int(answered)) for count, answered in calls] == calls_of(rows)
    counted = [row for row in rows if not row["shadow"]]
    assert 30 * sum(answered for _, answered in calls) == sum(row["input_tokens"] or 0 for row in counted)
    assert rows == told_on_disk(requests, restarts)[0]


@pytest.mark.parametrize("attempts", [1, 2])
def test_failure_reported_by_client_log_and_spans_counts_once(attempts: int) -> None:
    """
    A failed call that the client, the gateway's log and the gateway's spans report is counted once. The log shares
    no name with the client. The gateway's spans share names with both, and in practice arrive last.
    """
    every = list(permutations(["client", "log", "spans"]))
    for place, order in enumerate(every):
        requests = []
        for name in order:
            if name == "client":
                requests.append(request(client(1, attempts=attempts, traces_http=True, wraps=False)))
            for attempt in range(1, attempts + 1):
                if name == "log":
                    requests.append(log(1, attempt))
                elif name == "spans":
                    requests.append(request(gateway(1, attempt, traces_http=True, wraps=False)))
        runs = [told_in_memory(requests)]
        if is_on_disk(place, every):
            runs.append(told_on_disk(requests, [True]))
        for rows, conflicts in runs:
            counted = [row for row in rows if not row["shadow"]]
            assert [("error", "openai", "toll-1")] * attempts == [
                (row["status"], row["provider"], row["request_model"]) for row in counted
            ], order
            assert 0 == conflicts


def test_third_report_after_the_hold_corrects_the_later_record() -> None:
    """
    If two reports of one call are already closed and delivered as two records, a third report that names both leads
    to a correction, which makes them one call.
    """
    requests = [
        request(client(1, attempts=1, traces_http=True, wraps=False)),
        log(1, 1),
        request(gateway(1, 1, traces_http=True, wraps=False)),
    ]
    rows, _ = told_in_memory([*requests, *requests], [0.0, 11.0])
    ids = {row["source"]: row["id"] for row in rows if row["kind"] == "inference"}
    [taken_back] = [row for row in rows if row.get("reason") == "same_call"]
    assert (ids["litellm"], ids["openinference"]) == (taken_back["corrects"], taken_back["counted_by"])


@pytest.mark.parametrize(
    "order",
    part(
        [
            pytest.param(each)
            for each in permutations(["client", "gateway", "gateway again", "client again"], 4)
        ],
        every=4,
    ),
)
def test_one_failed_call_has_what_both_sides_know(order: tuple[str, ...]) -> None:
    """The record of a failed call has the same values whichever side reports first, and however often."""
    sides = {
        "client": client(1, attempts=1, traces_http=True, wraps=False),
        "gateway": gateway(1, 1, traces_http=True, wraps=False),
    }
    ((row,), conflicts) = told_in_memory([request(sides[name.partition(" ")[0]]) for name in order])
    assert 0 == conflicts
    assert row["status"] == "error"
    assert row["provider"] == "openai"
    assert row["request_model"] == "toll-1"


def test_calls_of_a_loop_stay_apart() -> None:
    """The calls are under one span of another failed request. The request joins one of them, never two."""
    loop = [made(number, "sdk", SDK, number, 1, parent=1, **FAILED) for number in (2, 3, 4)]
    outer = made(1, "openinference", LLM, 0, 9, **FAILED)
    for requests in permutations([request([one]) for one in (outer, *loop)]):
        assert 3 == len(told_in_memory(requests)[0])


@pytest.mark.parametrize("kind", ["TOOL", "AGENT"])
def test_a_call_below_a_tool_is_another_call(kind: str) -> None:
    """A call that a gateway's tool makes is not the call that reached the gateway."""
    server = made(3, "http", HTTP, 1, 5, parent=2)
    tool = made(4, "openinference", {"openinference.span.kind": kind}, 2, 3, parent=3)
    below = made(5, "sdk", SDK, 3, 1, parent=4, **FAILED)
    outer = made(2, "openinference", LLM, 0, 9, **FAILED)
    for requests in permutations([request([server, tool, below]), request([outer])]):
        assert 2 == len(told_in_memory(requests)[0])
