"""
Langfuse's SDK writes the span of a call next to that of the SDK's own instrumentation, as a sibling without an id. The
two are one call, in any order and number of requests, and parallel equal calls stay as many as they are.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from spool.log.planning.sibling_spans import MOST_BESIDE
from tests.gateway.normalise.otlp.items import SECOND
from tests.gateway.normalise.otlp.payloads import span
from tests.integration.order.dealt.shared_gateways import SharedGateways
from tests.integration.order.running import SEED, Request, Row, is_on_disk, told_in_memory, told_on_disk
from tests.rounds import IS_LONG, part
from tests.spool.contract.examples import NOON
from tests.spool.ledger.engines import POSTGRES, schemas_of

LANGFUSE, OTEL, OTHER = "langfuse-sdk", "opentelemetry.instrumentation.openai_v2", "shop"
FRAMEWORK = "opentelemetry.instrumentation.openai_agents"
Report = tuple[str, dict[str, Any]]  # a span with the name of its scope
USAGE = {"gen_ai.usage.input_tokens": 610, "gen_ai.usage.output_tokens": 33}
LATE = 20.0


def call_span(scope: str, number: int, start: float, end: float, **more: Any) -> Report:
    parent = more.pop("parent", 1)
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", **USAGE, **more}
    at = {"start": int((NOON + start) * SECOND), "end": int((NOON + end) * SECOND)}
    return scope, span(number, attributes, parent=parent, **at)


def generation(number: int, start: float, end: float, **more: Any) -> Report:
    stated = {"langfuse.observation.type": "generation", "langfuse.observation.model.name": "gpt-4o"}
    return call_span(LANGFUSE, 100 + number, start, end, **stated, **more)


def chat(number: int, start: float, end: float, **more: Any) -> Report:
    return call_span(
        OTEL, 200 + number, start, end, **{"gen_ai.response.id": f"chatcmpl-{number:024}"}, **more
    )


ROOT: Report = (LANGFUSE, span(1, {"langfuse.observation.type": "span"}, start=NOON * SECOND))


def request(*reports: Report) -> Request:
    scopes = [{"scope": {"name": scope}, "spans": [one]} for scope, one in reports]
    return Request("otlp/traces", json.dumps({"resourceSpans": [{"scopeSpans": scopes}]}).encode())


def apart(reports: Sequence[Report]) -> list[Request]:
    return [request(one) for one in reports]


def count(rows: Sequence[Row]) -> int:
    calls: int = sum(row["kind"] == "inference" and not row["shadow"] for row in rows)
    taken_back: int = sum(row["kind"] == "correction" and row["reason"] == "same_call" for row in rows)
    return calls - taken_back


@pytest.mark.parametrize(
    ("is_inside", "pause"),
    part([(is_inside, pause) for is_inside in (True, False) for pause in (0.0, LATE)], every=3),
)
def test_two_siblings_are_one_call(pause: float, is_inside: bool) -> None:
    """
    Two sibling spans of one call are one record: with or without the span above them, in one request and in
    several, repeated, with restarts, and after the hold.
    """
    inner, outer = (0.1, 0.9), (0.0, 1.0)
    both = [generation(1, *(outer if is_inside else inner)), chat(1, *(inner if is_inside else outer))]
    for reports in (both, [*both, ROOT]):
        orders = list(permutations(reports))
        for place, order in enumerate(orders):
            for requests in ([request(*order)], apart(order)):
                rows, conflicts = told_in_memory([*requests, *requests], [pause])
                assert (1, 0) == (count(rows), conflicts)
                [row] = [row for row in rows if row["kind"] == "inference" and not row["shadow"]][:1]
                assert 610 == row["input_tokens"]
            if is_on_disk(place, orders):
                rows, _ = told_on_disk(apart(order), [True], [pause])
                assert 1 == count(rows)


def test_a_sibling_of_the_span_around_the_call_is_the_call() -> None:
    """
    An agent framework writes a span of its own around the SDK's span, and Langfuse's is a sibling of the outer one.
    In one request, the three are one call, and equal calls at the same time stay two.
    """
    around = call_span(FRAMEWORK, 300, 0.05, 0.95)
    three = [generation(1, 0, 1), around, chat(1, 0.1, 0.9, parent=300)]
    again = [generation(2, 0, 1), call_span(FRAMEWORK, 301, 0.05, 0.95), chat(2, 0.1, 0.9, parent=301)]
    for order in permutations(three):
        for pause in (0.0, LATE):
            rows, conflicts = told_in_memory([request(*order)] * 2, [pause])
            assert (1, 0) == (count(rows), conflicts)
        assert 2 == count(told_in_memory([request(*order, *again)])[0])
    for other in (generation(1, 1.5, 1.9), generation(1, 0, 1, parent=2)):
        assert 2 == count(told_in_memory([request(other, *three[1:])])[0])


@pytest.mark.parametrize(
    "others",
    [
        [chat(1, 1.5, 1.9)],  # this span does not lie within the time of the other one
        [chat(1, 0.1, 0.9, parent=2)],  # this span is below another span
        [chat(1, 0.1, 0.9, **{"gen_ai.usage.output_tokens": 34})],
        [chat(1, 0.1, 0.9, **{"gen_ai.request.model": "gpt-5"})],
        [generation(2, 0.1, 0.9)],  # this span is of the same scope as the other one
    ],
)
def test_other_siblings_stay_calls(others: list[Report]) -> None:
    for order in permutations([generation(1, 0, 1), *others]):
        for requests in ([request(*order)], apart(order)):
            assert 2 == count(told_in_memory(requests)[0])


def test_calls_of_one_scope_stay_apart() -> None:
    """Equal parallel calls of one scope without an id stay separate calls, although each lies within another."""
    reports = [call_span(OTHER, 10 + number, 0.1 * number, 2 - 0.1 * number) for number in range(1, 5)]
    for requests in ([request(*reports)], apart(reports)):
        assert 4 == count(told_in_memory(requests)[0])


def parallel(chance: random.Random) -> tuple[list[Report], int]:
    """Return equal parallel calls. Most are reported by both scopes, and some by one. Return their number as well."""
    reports, calls = list[Report](), chance.randrange(1, 5)
    for number in range(calls):
        start, end = chance.uniform(0, 1), chance.uniform(2, 3)
        shift = chance.uniform(0.01, 0.3)
        kinds = chance.choice(["both", "both", "both", "langfuse", "otel"])
        if kinds != "otel":
            reports.append(generation(number, start, end))
        if kinds != "langfuse":
            reports.append(chat(number, start + shift, end - shift))
    return reports, calls


def most_pairs(reports: Sequence[Report]) -> int:
    """Return the most pairs of two scopes, each within the other's time, by trying all ways."""
    times = [(scope, int(one["startTimeUnixNano"]), int(one["endTimeUnixNano"])) for scope, one in reports]
    ours, theirs = ([each[1:] for each in times if each[0] == scope] for scope in (LANGFUSE, OTEL))
    small, large = sorted((ours, theirs), key=len)
    return max(
        sum((a <= c and d <= b) or (c <= a and b <= d) for (a, b), (c, d) in zip(small, chosen, strict=True))
        for chosen in permutations(large, len(small))
    )


@pytest.mark.parametrize("pause", [0.0, LATE])
def test_parallel_equal_calls_are_counted_by_hand(pause: float) -> None:
    """
    The number of records of parallel equal calls equals a count by hand, in random orders: the number of reports
    less the largest number of pairs that fit. So calls of two scopes are never fewer than were made.
    """
    chance = random.Random(SEED)
    for _ in range(200 if IS_LONG else 12):
        reports, calls = parallel(chance)
        expected = len(reports) - most_pairs(reports)
        assert expected <= calls
        for requests in (
            [request(*chance.sample(reports, len(reports)))],
            apart(chance.sample(reports, len(reports))),
        ):
            found = count(told_in_memory(requests, [pause])[0])
            assert expected == found
        scopes = [scope for scope, _ in reports]
        assert expected >= max(scopes.count(LANGFUSE), scopes.count(OTEL))


def test_of_very_many_equal_reports_none_is_paired() -> None:
    for more in (0, 1):
        reports = [generation(number, 0, 1) for number in range(MOST_BESIDE // 2)]
        reports += [chat(number, 0.1, 0.9) for number in range(MOST_BESIDE // 2 + more)]
        assert (len(reports) if more else MOST_BESIDE // 2) == count(told_in_memory([request(*reports)])[0])


@pytest.mark.proof
async def test_over_two_gateways(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    both = [generation(1, 0, 1), chat(1, 0.1, 0.9), ROOT]
    for order in permutations(both):
        gateways = SharedGateways(schemas_of(POSTGRES, request)())
        await gateways.start()
        for each in apart(order):
            await gateways.take(each)
            await gateways.pass_time(1.0)
        rows, _ = await gateways.judged()
        assert 1 == count(rows)
