"""
Reports of one call by its provider, the provider's SDK, a framework and an assistant. They share a response id,
a request id or only the trace, and arrive in requests of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest

from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import attribute, span, traces
from tests.integration.order.running import (
    ORDERS,
    SEED,
    Request,
    Row,
    cut,
    told_in_every_order,
    told_in_memory,
    told_on_disk,
)
from tests.rounds import part, some

MESSAGE, REQUEST = "msg_01AbCdEfGhJkLmNpQrStUv", "req_011CSHoEeqs5C35K2UUqR7Fy"
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude-sonnet-4-5",
}
USED = {
    "gen_ai.usage.input_tokens": 1500,
    "gen_ai.usage.output_tokens": 70,
    "gen_ai.usage.cache_read.input_tokens": 1000,
    "gen_ai.usage.cache_write.input_tokens": 200,
}
SCOPES = {
    "provider": ("com.anthropic.claude-platform", "claude-platform"),
    "sdk": ("com.anthropic.sdk.python", "shop"),
    "framework": ("some.framework", "shop"),
    "http": ("opentelemetry.instrumentation.httpx", "shop"),
}
# span ids of the framework, the SDK, the provider and the HTTP client
FRAMEWORK, SDK, PROVIDER, HTTP = 1, 10, 20, 30

Piece = tuple[str, dict[str, Any]]  # a span with the name of its sender


def of_scope(sender: str, *args: Any, **changes: Any) -> Piece:
    return sender, span(*args, **changes)


def request(*pieces: Piece) -> Request:
    resources = []
    for sender, one in pieces:
        scope, service = SCOPES[sender]
        resources += traces(one, scope=scope, resource={"service.name": service})["resourceSpans"]
    return Request("otlp/traces", json.dumps({"resourceSpans": resources}).encode())


def ended(request_id: str, failed: bool, message: str | None = MESSAGE) -> dict[str, Any]:
    end: dict[str, Any] = {"error.type": "overloaded_error"} if failed else USED
    known = {} if failed or message is None else {"gen_ai.response.id": message}
    return {**CHAT, **end, **known, "anthropic.request.id": request_id}


def provider(
    request_id: str = REQUEST, *, failed: bool = False, number: int = PROVIDER, **more: Any
) -> Piece:
    parent = more.pop("parent", SDK)
    message = more.pop("message", MESSAGE)
    name = "anthropic.messages.create"
    said = ended(request_id, failed, message)
    return of_scope("provider", number, said, parent=parent, kind=2, name=name, **more)


def sdk(request_id: str = REQUEST, *, failed: bool = False, number: int = SDK, **more: Any) -> Piece:
    parent = more.pop("parent", FRAMEWORK)
    message = more.pop("message", MESSAGE)
    return of_scope("sdk", number, ended(request_id, failed, message), parent=parent, kind=3, **more)


def framework(*, failed: bool = False, used: dict[str, Any] | None = None) -> Piece:
    end = {"error.type": "OverloadedError"} if failed else USED if used is None else used
    return of_scope("framework", FRAMEWORK, {**CHAT, **end})


def assistant(request_id: str = REQUEST, *, failed: bool = False) -> Request:
    said: dict[str, Any] = {"model": "claude-sonnet-4-5", "duration_ms": 1000, "request_id": request_id}
    name = "api_error" if failed else "api_request"
    if failed:
        said |= {"error": "Overloaded", "status_code": 529}
    else:
        said |= {"input_tokens": 300, "output_tokens": 70, "cache_read_tokens": 1000, "cost_usd": 0.0031}
        said |= {"cache_creation_tokens": 200}
    record = {
        "timeUnixNano": str(NOW + SECOND),
        "body": {"stringValue": f"claude_code.{name}"},
        "attributes": [attribute(key, value) for key, value in {**said, "event.name": name}.items()],
    }
    scope = {"name": "com.anthropic.claude_code.events"}
    logs = {"resourceLogs": [{"scopeLogs": [{"scope": scope, "logRecords": [record]}]}]}
    return Request("otlp/logs", json.dumps(logs).encode())


def orders(requests: Sequence[Request], at_most: int = 12 * ORDERS) -> Sequence[Sequence[Request]]:
    every = list(permutations(requests))
    return every if len(every) <= at_most else Random(SEED).sample(every, at_most)


def assert_calls(requests: Sequence[Request], expected: Sequence[str]) -> list[Row]:
    """Check that every order of the requests makes calls with these statuses. Return the calls of one order."""
    calls: list[Row] = []
    tried = list(orders(requests))
    for place, order in enumerate(some(tried, every=5 if len(tried) > 6 else 1)):
        runs = [told_in_memory(order)]
        if place % 5 == 0:
            runs.append(told_on_disk(order, [True]))
        for rows, conflicts in runs:
            calls = [row for row in rows if not row["shadow"]]
            arrived = [requests.index(one) for one in order]
            assert sorted(expected) == sorted(row["status"] for row in calls), arrived
            assert 1570 * expected.count("ok") == sum(
                (row["input_tokens"] or 0) + (row["output_tokens"] or 0) for row in calls
            ), arrived
            assert 0 == conflicts
    return calls


# the SDK knows neither the response id nor the counts of such a stream
CLOSED_EARLY = of_scope("sdk", SDK, {**CHAT, "anthropic.request.id": REQUEST}, parent=FRAMEWORK, kind=3)
SETS: dict[str, list[Request]] = {
    "provider, assistant": [request(provider(parent=None)), assistant()],
    "provider, sdk": [request(provider()), request(sdk())],
    "sdk, assistant": [request(sdk()), assistant()],
    "sdk without a response id, provider": [request(sdk(message=None)), request(provider())],
    "sdk without a response id, provider in its own trace": [
        request(sdk(message=None)),
        request(provider(parent=None)),
    ],
    "sdk, framework": [request(sdk()), request(framework())],
    "sdk and framework together": [request(sdk(), framework())],
    "provider, framework": [request(provider(parent=FRAMEWORK)), request(framework())],
    "provider, sdk, framework": [request(provider()), request(sdk()), request(framework())],
    "provider and sdk together, framework": [request(provider(), sdk()), request(framework())],
    "provider, sdk and framework together": [request(provider()), request(sdk(), framework())],
    "provider and framework together, sdk": [request(provider(), framework()), request(sdk())],
    "framework and a stream of the sdk that was closed early together, provider in its own trace": [
        request(CLOSED_EARLY, framework()),
        request(provider(parent=None)),
    ],
    "all": [request(provider()), request(sdk()), request(framework()), assistant()],
}


@pytest.mark.parametrize("name", part([*SETS], every=2))
def test_an_answered_call_is_one_call(name: str) -> None:
    """One answered call is one record with all counts, whichever of its reporters arrives first."""
    (call,) = assert_calls(SETS[name], ["ok"])
    assert (1000, 200) == (call["cache_read_tokens"], call["cache_write_tokens"])


FAILED_SETS: dict[str, list[Request]] = {
    "provider, assistant": [request(provider(failed=True)), assistant(failed=True)],
    "provider, sdk": [request(provider(failed=True)), request(sdk(failed=True))],
    "provider in its own trace, sdk": [
        request(provider(failed=True, parent=None)),
        request(sdk(failed=True)),
    ],
    "sdk, assistant": [request(sdk(failed=True)), assistant(failed=True)],
    "sdk, framework": [request(sdk(failed=True)), request(framework(failed=True))],
    "sdk and framework together, provider": [
        request(sdk(failed=True), framework(failed=True)),
        request(provider(failed=True, parent=None)),
    ],
    "all": [
        request(provider(failed=True)),
        request(sdk(failed=True)),
        request(framework(failed=True)),
        assistant(failed=True),
    ],
}


@pytest.mark.parametrize("name", part([*FAILED_SETS], every=2))
def test_a_failed_call_is_one_failure(name: str) -> None:
    """A failure has no response id. The request id and the trace join its reports."""
    assert_calls(FAILED_SETS[name], ["error"])


UNCOUNTED: dict[str, Any] = {}
CONNECTED = ("PS", "PA", "SA", "PSA", "SF", "PF", "PSF", "PFA", "SFA", "PSFA")


def reports_of(number: int, chance: Random) -> tuple[list[Piece | Request], list[str]]:
    """Return the spans and events of one call in a trace of its own, and the statuses of its attempts."""
    reporters, failed = chance.choice(CONNECTED), chance.random() < 0.4
    trace: dict[str, Any] = {"traceId": f"{number:032x}"}
    ids = [
        f"req_{number:010d}{attempt:014d}"
        for attempt in range(chance.randrange(1, 4) if "P" in reporters else 1)
    ]
    message = f"msg_{number:024d}"
    pieces: list[Piece | Request] = []
    for attempt, request_id in enumerate(ids):
        is_last = attempt == len(ids) - 1
        if "P" in reporters:
            above = SDK if "S" in reporters else FRAMEWORK
            end: dict[str, Any] = {"failed": failed or not is_last, "message": message}
            pieces.append(provider(request_id, number=PROVIDER + attempt, parent=above, **end, **trace))
    if "S" in reporters:
        said = message if chance.random() < 0.7 or not {"P", "A"} & {*reporters} else None
        pieces.append(sdk(ids[-1], failed=failed, message=said, **trace))
    if "F" in reporters:
        used = chance.choice([USED, WITHOUT_CACHE, WITH_READS, WHOLE])
        sender, one = framework(failed=failed, used=used)
        pieces.append((sender, one | trace))
    if "A" in reporters:
        pieces.append(assistant(ids[-1], failed=failed))
    return pieces, ["error"] * (len(ids) - 1) + ["error" if failed else "ok"]


@pytest.mark.parametrize("seed", part(range(SEED, SEED + 10 * ORDERS), every=5))
def test_traces_may_be_cut_anywhere(seed: int) -> None:
    """The number of failed and answered calls is right however spans are spread over requests, and over a restart."""
    chance = Random(seed)
    pieces: list[Piece | Request] = []
    expected: list[str] = []
    for number in range(1, 9):
        reported, statuses = reports_of(number, chance)
        pieces += reported
        expected += statuses
    chance.shuffle(pieces)
    requests: list[Request] = []
    for group in cut(pieces, [chance.random() < 0.6 for _ in pieces]):
        requests += [piece for piece in group if isinstance(piece, Request)]
        if spans := [piece for piece in group if not isinstance(piece, Request)]:
            requests.append(request(*spans))
    rows, _ = told_on_disk(requests, [chance.random() < 0.2 for _ in requests])
    calls = [row for row in rows if not row["shadow"]]
    assert sorted(expected) == sorted(row["status"] for row in calls)
    tokens = sum((row["input_tokens"] or 0) + (row["output_tokens"] or 0) for row in calls)
    assert 1570 * expected.count("ok") == tokens


WITHOUT_CACHE = {"gen_ai.usage.input_tokens": 300, "gen_ai.usage.output_tokens": 70}
WITH_READS = {"gen_ai.usage.input_tokens": 1300, "gen_ai.usage.output_tokens": 70}
WITH_WRITES = {"gen_ai.usage.input_tokens": 500, "gen_ai.usage.output_tokens": 70}
WHOLE = {"gen_ai.usage.input_tokens": 1500, "gen_ai.usage.output_tokens": 70}


@pytest.mark.parametrize("used", [UNCOUNTED, WITHOUT_CACHE, WITH_READS, WITH_WRITES, WHOLE])
def test_a_framework_may_count_the_cache_or_not(used: dict[str, Any]) -> None:
    """The framework's span joins the SDK's span in another request, whether or not it counts the cache as input."""
    for below in (sdk(), provider(parent=FRAMEWORK)):
        (call,) = assert_calls([request(below), request(framework(used=used))], ["ok"])
        assert (1000, 200) == (call["cache_read_tokens"], call["cache_write_tokens"])


def test_a_provider_reports_every_attempt_of_the_sdk() -> None:
    """
    If the provider reports every attempt of the SDK, each attempt is a call. The SDK has one span for all its
    attempts, with the request id of the last one.
    """
    attempts = [
        request(provider(f"req_00000000000000000000000{number}", failed=True, number=PROVIDER + number))
        for number in (1, 2)
    ]
    last = "req_000000000000000000000003"
    for failed, expected in ((True, ["error"] * 3), (False, ["error", "error", "ok"])):
        third = request(provider(last, failed=failed, number=PROVIDER + 3))
        reports = [*attempts, third, request(sdk(last, failed=failed))]
        assert_calls(reports, expected)
        assert_calls(
            [*attempts, third, request(sdk(last, failed=failed), framework(failed=failed))], expected
        )
        assert_calls([*reports, request(framework(failed=failed)), assistant(last, failed=failed)], expected)


def test_a_failure_together_with_its_first_attempt_leaves_the_last_one_apart() -> None:
    """The SDK's span states the last attempt's request id, so the first attempt below it does not get that id."""
    first, last = "req_000000000000000000000001", "req_000000000000000000000002"
    together = request(sdk(last, failed=True), provider(first, failed=True))
    assert_calls([together, request(provider(last, failed=True, number=PROVIDER + 1))], ["error"] * 2)


def test_retries_of_a_framework_stay_apart() -> None:
    """
    If a framework calls the SDK again after a failure, or after an answer with the same counts, the calls stay
    separate.
    """
    again = request(
        sdk("req_000000000000000000000002", number=SDK + 1, message="msg_00000000000000000000000b")
    )
    failed = request(sdk("req_000000000000000000000001", failed=True))
    assert_calls([request(framework()), failed, again], ["error", "ok"])
    assert_calls([request(framework()), request(sdk()), again], ["ok", "ok"])
    lost = request(of_scope("sdk", SDK, {**CHAT, "error.type": "timeout"}, parent=FRAMEWORK))
    failed_again = request(sdk("req_000000000000000000000001", failed=True, number=SDK + 1))
    assert_calls([request(framework(failed=True)), lost, failed_again], ["error", "error"])


def test_a_span_of_http_may_be_in_between() -> None:
    """
    If a span of an HTTP client lies between the two sides of a call, it links both, whichever side's request
    contains it.
    """
    http = of_scope("http", HTTP, {"http.request.method": "POST"}, parent=FRAMEWORK)
    below = provider(parent=HTTP)
    assert_calls([request(framework(), http), request(below)], ["ok"])
    assert_calls([request(framework()), request(http, below)], ["ok"])


@pytest.mark.parametrize(
    ("scope", "attributes", "is_name"),
    [
        ("aws", {"aws.request_id": "58db0e4d-2fc8-4861-976c-bc1228a16642", "rpc.method": "Converse"}, True),
        ("aws", {"aws.request.id": "58db0e4d-2fc8-4861-976c-bc1228a16642", "rpc.method": "Converse"}, True),
        ("lambda", {"aws.request_id": "58db0e4d-2fc8-4861-976c-bc1228a16642"}, False),
        ("azure", {"az.service_request_id": "58db0e4d-2fc8-4861-976c-bc1228a16642"}, True),
        ("proxy", {"x-request-id": "58db0e4d-2fc8-4861-976c-bc1228a16642"}, False),
        ("short", {"anthropic.request.id": "req_1"}, False),
    ],
)
def test_only_ids_of_the_provider_are_names(scope: str, attributes: dict[str, Any], is_name: bool) -> None:
    """Two reports with the same id of the provider's request are one call. Other ids join nothing."""
    reports = []
    for number in (1, 2):
        message = {} if number == 1 else {"gen_ai.response.id": MESSAGE}
        one = span(number, {**CHAT, **USED, **attributes, **message}, traceId=f"{number:032x}")
        reports.append(Request("otlp/traces", json.dumps(traces(one, scope=scope)).encode()))
    assert_calls(reports, ["ok"] if is_name else ["ok", "ok"])


def bedrock() -> Request:
    entry = {
        "schemaType": "ModelInvocationLog", "schemaVersion": "1.0", "timestamp": "2026-03-02T09:00:00Z",
        "requestId": "58db0e4d-2fc8-4861-976c-bc1228a16642", "operation": "Converse", "region": "us-east-1",
        "modelId": "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "input": {"inputTokenCount": 300, "cacheReadInputTokenCount": 1000, "cacheWriteInputTokenCount": 200},
        "output": {"outputTokenCount": 70},
    }  # fmt: skip
    return Request("bedrock", json.dumps(entry).encode())


def test_bedrocks_log_is_the_call_of_a_traced_sdk() -> None:
    """Converse returns no response id. The span of an AWS SDK states the request id that Bedrock logs."""
    said = {
        **CHAT, **USED, "gen_ai.provider.name": "aws.bedrock", "rpc.system": "aws-api", "rpc.method": "Converse",
        "aws.request_id": "58db0e4d-2fc8-4861-976c-bc1228a16642",
    }  # fmt: skip
    scope = "opentelemetry.instrumentation.botocore.bedrock-runtime"
    traced = Request("otlp/traces", json.dumps(traces(span(1, said), scope=scope)).encode())
    for rows, _ in told_in_every_order([bedrock(), traced], times=1):
        assert 1 == len(rows)


def test_an_assistant_with_both_ids_is_known_by_both() -> None:
    """If a later release of an assistant states the response id as well, both ids are names of the call."""
    make: Callable[[dict[str, Any]], Request] = lambda more: Request(  # noqa: E731
        "otlp/traces",
        json.dumps(
            traces(
                span(5, {"span.type": "llm_request", **CHAT, **WHOLE, **more}, traceId=f"{5:032x}"),
                scope="com.anthropic.claude_code.tracing",
            )
        ).encode(),
    )
    both = make({"gen_ai.response.id": MESSAGE, "request_id": REQUEST})
    for reports in ([both, assistant()], [both, request(provider(parent=None))]):
        for order in permutations(reports):
            assert 1 == len(told_in_memory(order)[0])
