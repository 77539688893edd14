"""
A call that a framework and the SDK below it report in traces of their own, without a common id. The SDK's span
belongs to the framework's call if its times lie within exactly that call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import permutations
from operator import itemgetter
from random import Random
from typing import Any

import pytest

from spool.log.planning.corrections import SAME_CALL
from tests.gateway.normalise.otlp.items import NOW, SECOND
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
from tests.integration.order.test_request_ids import REQUEST, USED, assistant, orders
from tests.rounds import part, some
from tests.spool.contract.examples import NOON

FRAMEWORK, SDK = "agents", "com.anthropic.sdk.typescript"
MODEL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-haiku-4-5"}
Report = tuple[str, dict[str, Any]]  # a span with the name of its scope
DESK = {"service.name": "desk"}


def report(scope: str, number: int, start: float, end: float, **more: Any) -> Report:
    """Return a span in a trace of its own. Times are seconds after NOON."""
    counts = {"input_tokens": 610, "output_tokens": 33}
    failed = more.pop("failed", False)
    counts |= {name: more.pop(name) for name in ("input_tokens", "output_tokens") if name in more}
    attributes = {**MODEL, **more}
    if failed:
        attributes["error.type"] = "api_error"
    else:
        attributes |= {f"gen_ai.usage.{name}": count for name, count in counts.items()}
    at = {"start": int((NOON + start) * SECOND), "end": int((NOON + end) * SECOND)}
    return scope, span(number, attributes, traceId=f"{number:032x}", **at)


def around(number: int, start: float, end: float, **more: Any) -> Report:
    return report(FRAMEWORK, 2 * number, start, end, **more)


def by_sdk(number: int, start: float, end: float, **more: Any) -> Report:
    if not more.get("failed"):
        more["gen_ai.response.id"] = f"msg_1111222233334444aa{number:02}"
    return report(SDK, 2 * number + 1, start, end, **more)


def request(*reports: Report, resource: dict[str, str] = DESK) -> Request:
    attributes = [{"key": key, "value": {"stringValue": text}} for key, text in resource.items()]
    scopes = [{"scope": {"name": scope}, "spans": [one]} for scope, one in reports]
    payload = {"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": scopes}]}
    return Request("otlp/traces", json.dumps(payload).encode())


def counted(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not row["shadow"]]


def ways(reports: Sequence[Report]) -> Iterable[list[Request]]:
    """
    Return the reports in every order, in one request, and in requests of their own. Outside proofs, only every fifth
    order of four reports.
    """
    for order in some([*permutations(reports)], every=1 if len(reports) < 4 else 5):
        yield [request(*order)]
        yield [request(one) for one in order]


@pytest.mark.parametrize("failed", [False, True])
def test_both_reports_are_one_call(failed: bool) -> None:
    """
    A call that a framework and the SDK both report is one record: in one request or in two, in each order,
    repeated, with restarts, and after the record closed.
    """
    every = list(ways([around(1, 0, 1, failed=failed), by_sdk(1, 0.1, 0.9, failed=failed)]))
    for place, requests in enumerate(every):
        runs = [
            told_in_memory(requests),
            told_in_memory([*requests, *requests]),
            told_in_memory([*requests, *requests], [20.0]),
        ]
        if is_on_disk(place, every):
            runs.append(told_on_disk([*requests, *requests], [True]))
        for rows, conflicts in runs:
            [row] = counted(rows)
            assert 0 == conflicts
            assert (None if failed else 610) == row["input_tokens"]


def test_loops_and_strangers_stay_calls() -> None:
    """
    Calls that a framework makes in a loop, with equal counts, stay separate. So does an SDK's call outside all of
    them.
    """
    loop = [around(n, n, n + 0.9) for n in (1, 2)] + [by_sdk(n, n + 0.1, n + 0.8) for n in (1, 2)]
    for requests in ways(loop):
        assert 2 == len(counted(told_in_memory(requests)[0]))
    alone = [around(1, 1, 2), by_sdk(1, 1.1, 1.9), by_sdk(2, 3.1, 3.9)]
    for requests in ways(alone):
        assert 2 == len(counted(told_in_memory(requests)[0]))


def by_provider(number: int, start: float, end: float, **more: Any) -> Report:
    """Return the span of Anthropic's platform. Its clock is 0.3 s behind."""
    more["gen_ai.response.id"] = f"msg_1111222233334444aa{number:02}"
    return report("com.anthropic.claude-platform", 100 + number, start - 0.3, end - 0.3, **more)


def test_with_the_span_of_the_provider() -> None:
    """
    The provider's span, which has the id of the SDK's span and times by another clock, belongs to the same call.
    """
    every = list(ways([around(1, 0, 1), by_sdk(1, 0.1, 0.9), by_provider(1, 0.2, 0.8)]))
    for place, requests in enumerate(every):
        runs = [told_in_memory(requests)]
        if is_on_disk(place, every):
            runs.append(told_on_disk([*requests, *requests], [True]))
        for rows, conflicts in runs:
            assert (1, 0) == (len(counted(rows)), conflicts)
    first = [request(by_provider(1, 0.2, 0.8)), request(by_sdk(1, 0.1, 0.9)), request(around(1, 0, 1))]
    assert 1 == len(counted(told_in_memory(first, [20.0])[0]))


def test_with_the_model_run_of_a_failed_request() -> None:
    """
    If a failed request has a span of the model's run below the SDK's span, this span has no id, like the
    framework's call. It is still not taken for the framework's call.
    """
    framework, sdk = around(1, 0, 1, failed=True), by_sdk(1, 0.1, 0.9, failed=True)
    scope, run = report("com.anthropic.claude-platform", 100, 0.2, 0.8, failed=True)
    run |= {"name": "anthropic.model_run", "traceId": sdk[1]["traceId"], "parentSpanId": sdk[1]["spanId"]}
    for order in permutations([framework, sdk, (scope, run)]):
        rows, _ = told_in_memory([request(one) for one in order])
        assert 1 == len(counted(rows))


@pytest.mark.parametrize("is_closed", [False, True])
def test_the_counts_are_those_of_the_sdk(is_closed: bool) -> None:
    """If the framework leaves the cache out of the input, the record and its correction have the SDK's counts."""
    cache = {"gen_ai.usage.cache_read.input_tokens": 400, "gen_ai.usage.cache_write.input_tokens": 200}
    for told_cache in ({}, cache):
        reports = [
            around(1, 0, 1, input_tokens=1010, **told_cache),
            by_sdk(1, 0.1, 0.9, input_tokens=1610, **cache),
        ]
        for requests in ways(reports):
            rows, conflicts = told_in_memory([*requests, *requests], [20.0] if is_closed else ())
            [row] = [row for row in counted(rows) if row["kind"] == "inference"]
            corrections = [row for row in rows if row["kind"] == "correction"]
            added = sum(correction["input_tokens"] or 0 for correction in corrections)
            assert (1610, 0) == ((row["input_tokens"] or 0) + added, conflicts)


def test_what_does_not_fit_is_another_call() -> None:
    """
    A span of the SDK belongs to another call than the framework's span if its process, model, input, output or
    outcome differs, or if it does not lie within that span.
    """
    ours = around(1, 0, 1)
    others = [
        request(by_sdk(1, 0.1, 0.9), resource={"service.name": "till"}),
        request(by_sdk(1, 0.1, 0.9), resource={**DESK, "service.instance.id": "2"}),
        request(by_sdk(1, 0.1, 0.9), resource={**DESK, "process.pid": "2"}),
        *map(request, [
            by_sdk(1, 0.1, 0.9, **{"gen_ai.request.model": "claude-opus-4-5"}),
            by_sdk(1, 0.1, 0.9, output_tokens=34),
            by_sdk(1, 0.1, 0.9, input_tokens=611),
            by_sdk(1, 0.1, 0.9, failed=True),
            by_sdk(1, -0.1, 0.9),
            by_sdk(1, 0.1, 1.1),
        ]),
    ]  # fmt: skip
    for other in others:
        for requests in permutations([request(ours), other]):
            assert 2 == len(counted(told_in_memory(requests)[0])), other


def test_an_end_may_be_a_millisecond_late() -> None:
    """
    An SDK's span may end up to a millisecond after the framework's span, because OpenTelemetry for JavaScript drops
    fractions of a millisecond from a start.
    """
    for requests in ways([around(1, 0, 1), by_sdk(1, 0, 1.0009)]):
        assert 1 == len(counted(told_in_memory(requests)[0]))


def test_equal_calls_at_the_same_time() -> None:
    """
    If a span of the SDK lies within two equal calls, it is joined to neither. If only one of them is known when it
    arrives, it is joined to that one. No order makes fewer records than calls were made.
    """
    two = [around(1, 0, 2), around(2, 0.1, 2.1)]
    within_both, within_second = by_sdk(1, 0.2, 1.8), by_sdk(2, 0.3, 2.05)
    assert 3 == len(counted(told_in_memory([request(*two, within_both)])[0]))
    in_order_of_their_ends = [within_both, two[0], within_second, two[1]]
    assert 2 == len(counted(told_in_memory([request(*in_order_of_their_ends)])[0]))
    for requests in ways([*two, within_both, within_second]):
        assert 2 <= len(counted(told_in_memory(requests)[0])) <= 3
    for requests in ways([around(1, 0, 2), by_sdk(1, 0.2, 1.8), by_sdk(2, 0.3, 1.7)]):
        assert 2 == len(counted(told_in_memory(requests)[0]))


def test_below_other_spans() -> None:
    """If the SDK's span is below a span that is not a call, only a call of the same trace is around it."""
    scope, sdk = by_sdk(1, 0.1, 0.9)
    framework_scope, call = around(1, 0, 1)
    server = span(90, {"http.request.method": "POST"}, traceId=f"{9:032x}")
    ours = {"traceId": f"{9:032x}", "parentSpanId": server["spanId"]}
    spans = [("http", server), (scope, {**sdk, **ours}), (framework_scope, {**call, **ours})]
    for requests in ways(spans):
        assert 1 == len(counted(told_in_memory(requests)[0]))
    spans[2] = framework_scope, {**call, **ours, "traceId": f"{8:032x}"}
    for requests in ways(spans):
        assert 2 == len(counted(told_in_memory(requests)[0]))


def test_more_equal_calls_than_are_searched() -> None:
    """
    A search for a framework's call reads only the newest 32 equal calls of a step of time. A call that is older
    than these counts twice.
    """
    calls = [
        one
        for n in range(1, 41)
        for one in (around(n, n / 20, n / 20 + 0.04), by_sdk(n, n / 20, n / 20 + 0.04))
    ]
    frameworks = [one for one in calls if one[0] == FRAMEWORK]
    sdks = [one for one in calls if one[0] == SDK]
    assert 40 == len(counted(told_in_memory([request(*calls)])[0]))
    assert 48 == len(counted(told_in_memory([request(*frameworks), request(*sdks)])[0]))


def reports_of_all(failed: bool) -> dict[str, Request]:
    """Return the reports of one call by the SDK, a framework, the provider, an assistant and a gateway."""
    model = {"gen_ai.request.model": "claude-sonnet-4-5"}
    ids = {"anthropic.request.id": REQUEST, **model}
    counts = {} if failed else {"input_tokens": 1500, "output_tokens": 70}
    used = ids if failed else ids | {name: n for name, n in USED.items() if ".cache_" in name}
    without_cache = {} if failed else counts | {"input_tokens": 300}
    answered = {} if failed else {"gen_ai.response.id": "msg_1111222233334444aa01"}
    platform = report(
        "com.anthropic.claude-platform", 101, -0.2, 0.5, failed=failed, **used, **counts, **answered
    )
    log = {
        "id": "chatcmpl-1" if failed else answered["gen_ai.response.id"], "call_type": "anthropic_messages",
        "model": "claude-sonnet-4-5", "status": "failure" if failed else "success",
        "prompt_tokens": counts.get("input_tokens", 0), "completion_tokens": counts.get("output_tokens", 0),
        "startTime": NOON, "endTime": NOON + 1,
        "hidden_params": {"additional_headers": {"llm_provider-request-id": REQUEST}},
    }  # fmt: skip
    event = assistant(REQUEST, failed=failed)
    event_body = event.body.replace(str(NOW + SECOND).encode(), str((NOON + 1) * SECOND).encode())
    return {
        "sdk": request(by_sdk(1, 0.1, 0.9, failed=failed, **used, **counts)),
        "framework": request(around(1, 0, 1, failed=failed, **model, **without_cache)),
        "provider": request(platform, resource={"service.name": "claude-platform"}),
        "assistant": Request(event.format, event_body),
        "gateway": Request("litellm", json.dumps(log).encode()),
    }


@pytest.mark.parametrize("failed", part([False, True], every=2))
@pytest.mark.parametrize("others", [(), ("provider",), ("provider", "assistant", "gateway")])
def test_with_further_reporters(failed: bool, others: tuple[str, ...]) -> None:
    """
    Further reporters with the ids of the SDK's report join it, whether its record is open or closed. Together with
    the framework's report, all are one call. Every third order is repeated over restarts.
    """
    requests = reports_of_all(failed)
    names = ("sdk", "framework", *others)
    for place, order in enumerate(orders([requests[name] for name in names])):
        runs = [told_in_memory(order), told_in_memory(order, [20.0])]
        if place % 3 == 0:
            runs.append(told_on_disk([*order, *order], [True, False]))
        for rows, conflicts in runs:
            # before the SDK's report arrives, the gateway's input may disagree with that of the framework
            assert 0 == conflicts or "gateway" in others
            taken_back = sum(row.get("reason") == SAME_CALL for row in rows)
            assert 1 == len([row for row in counted(rows) if row["kind"] == "inference"]) - taken_back
            assert (0 if failed else 1500) == sum(row["input_tokens"] or 0 for row in counted(rows))


@pytest.mark.parametrize("seed", range(SEED, SEED + 5 * ORDERS))
def test_loops_cut_anywhere(seed: int) -> None:
    """
    Agents call in loops with equal counts, and some of their reports get lost. Each call is one record, however
    the spans are spread over requests, over restarts and after their records closed.
    """
    chance = Random(seed)
    reports: list[Report] = []
    calls = 0
    for agent in range(3):
        at = chance.random()
        for _ in range(6):
            calls += 1
            length = 0.2 + 3 * chance.random()
            counts: dict[str, Any] = {"output_tokens": 40 + agent}
            both = [
                around(calls, at, at + length, **counts),
                by_sdk(calls, at + 0.05, at + length - 0.01, **counts),
            ]
            reports += both if chance.random() < 0.8 else [chance.choice(both)]
            at += length + 0.003
    chance.shuffle(reports)
    requests = [request(*group) for group in cut(reports, [chance.random() < 0.6 for _ in reports])]
    pauses = [20.0 if chance.random() < 0.1 else 0.0 for _ in requests]
    rows, conflicts = told_on_disk(requests, [chance.random() < 0.2 for _ in requests], pauses)
    assert (calls, 0) == (len(counted(rows)), conflicts)


@pytest.mark.parametrize("seed", range(SEED, SEED + 5 * ORDERS))
def test_no_equal_call_is_lost(seed: int) -> None:
    """Of equal calls at the same time, none is lost in any order. In the order of their ends, few count twice."""
    chance = Random(seed)
    calls = 20
    reports: list[tuple[float, Report]] = []
    for number in range(1, calls + 1):
        start, length = 6 * chance.random(), 0.5 + 2 * chance.random()
        end = start + length
        reports += [(end, around(number, start, end)), (end - 0.01, by_sdk(number, start + 0.01, end - 0.01))]
    reports.sort(key=itemgetter(0))
    in_order = [one for _, one in reports]
    shuffled = chance.sample(in_order, len(in_order))
    found = []
    for ordered in (in_order, shuffled):
        groups = cut(ordered, [chance.random() < 0.6 for _ in ordered])
        rows, _ = told_in_memory([request(*group) for group in groups])
        found.append(len(counted(rows)))
    assert calls == found[0]
    assert calls <= found[1] <= 2 * calls
