"""
Captured assistants behind the LiteLLM proxy, and both report every call. In any order, each call is one record with
the model, the counts and the cost that LiteLLM served.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spool.record import Correction, Inference, Record
from tests.clients.capture import PLACE, Capture, read
from tests.clients.journal import Call
from tests.integration.order.dealt.shared_gateways import SharedGateways
from tests.integration.order.running import HOLD_S, SEED, Gateway, Request, normalised
from tests.integration.order.test_captured_agents import dealt, pieces_of
from tests.integration.order.test_claude_code_behind_litellm import LAPTOP
from tests.rounds import IS_LONG, examples, part
from tests.spool.ledger.engines import POSTGRES, schemas_of

FILES = sorted(PLACE.glob("*_litellm/*.jsonl.gz"))
LATE_S = HOLD_S + 1.0
MILLIONTH = Decimal("0.000001")


def captured(path: Path) -> str:
    return f"{path.parent.name.removesuffix('_litellm')}, {path.name.removesuffix('.jsonl.gz')}"


def whole_requests(capture: Capture) -> list[Request]:
    """Return the requests without counters, which repeat the calls."""
    sent = [each for each in capture.requests if not each.path.endswith("/metrics")]
    names = [each.path.rpartition("/")[2] for each in sent]
    formats = [name if name == "litellm" else f"otlp/{name}" for name in names]
    return [Request(format, each.body) for format, each in zip(formats, sent, strict=True)]


def orders_of_items(capture: Capture, chance: random.Random) -> Iterator[list[Request]]:
    """Yield random orders of all items, in requests of any size, and some of them twice."""
    if capture.family == "gemini_cli_litellm":  # Gemini CLI states a call in two events of one request
        while True:
            requests = whole_requests(capture)
            yield chance.sample(requests * 2, 2 * len(requests))
    sent = [each for each in capture.requests if not each.path.endswith("/metrics")]
    pieces = [piece for each in sent for piece in pieces_of(each)]
    while True:
        yield dealt(pieces, chance)


async def records_after(requests: Sequence[Request], *, pause: float, directory: Path | None) -> list[Record]:
    gateway = Gateway(directory)
    await gateway.start()
    for request in requests:
        await gateway.take(request)
        if pause:
            await gateway.pass_time(pause)
        await gateway.restart()
    records, conflicts = await gateway.closed()
    assert conflicts == 0
    return records


def calls_that_count(records: Sequence[Record]) -> list[Inference]:
    """Return the calls after all corrections."""
    calls = {record.id: record for record in records if isinstance(record, Inference)}
    for record in records:
        if isinstance(record, Correction):
            calls[record.corrects] = record.after
    return [call for call in calls.values() if not call.shadow]


def assert_are_the_journals(records: Sequence[Record], capture: Capture) -> None:
    """Compare with the provider's journal. LiteLLM's cost counts."""
    calls = calls_that_count(records)
    assert Counter(map(_figures, capture.told)) == Counter(map(_figures, calls))
    # LiteLLM may log the model that it asked for instead of the dated name in the response
    answered = {call.request_model for call in capture.told if call.status == "ok"}
    answered |= {call.response_model for call in capture.told}
    assert {call.response_model for call in calls} <= {None, *answered}
    spent = sum((Decimal(call.cost or 0) for call in calls if call.status == "ok"), Decimal(0))
    assert capture.cost is not None
    assert capture.cost.quantize(MILLIONTH) == spent.quantize(MILLIONTH)


def _figures(call: Call | Inference) -> tuple[Any, ...]:
    counts = (call.input_tokens, call.output_tokens, call.cache_read_tokens)
    return call.status, call.request_model, *[count or 0 for count in counts]


@pytest.mark.parametrize("pause", part([0.0, LATE_S], every=2), ids=["in time", "late"])
@pytest.mark.parametrize("path", part([*FILES], every=2), ids=captured)
async def test_every_call_is_one_record_with_the_model_that_served(path: Path, pause: float) -> None:
    """In the captured order, and backwards. *Late* closes each record before the next request."""
    capture = read(path)
    requests = whole_requests(capture)
    estimates = []
    for order in (requests, requests[::-1]):
        records = await records_after(order, pause=pause, directory=None)
        assert_are_the_journals(records, capture)
        estimates.append(Counter(call.estimated_cost for call in calls_that_count(records)))
    assert estimates[0] == estimates[1]


def with_clock_moved(request: Request, seconds: float) -> Request:
    """Return LiteLLM's log as written by a machine whose clock differs. Other requests stay the same."""
    if request.format != "litellm":
        return request
    events = json.loads(request.body)
    for event in events:
        event |= {name: event[name] + seconds for name in ("startTime", "endTime")}
    return replace(request, body=json.dumps(events).encode())


@pytest.mark.parametrize("seconds", part([3, -3], every=2))
@pytest.mark.parametrize(
    "run",
    [
        "claude_code_litellm/fallback_2_1_197",
        "codex_litellm/busy_failure",
        "copilot_cli_litellm/responses",
        "gemini_cli_litellm/prompt",
        "opencode_litellm/busy_failure",
    ],
)
async def test_the_clocks_of_two_machines_differ(run: str, seconds: float) -> None:
    capture = read(PLACE / f"{run}.jsonl.gz")
    requests = [with_clock_moved(request, seconds) for request in whole_requests(capture)]
    for order in (requests, requests[::-1]):
        assert_are_the_journals(await records_after(order, pause=0.0, directory=None), capture)


@pytest.mark.parametrize(
    ("run", "asked"),
    [
        ("claude_code_litellm/fallback", "unsteady-claude"),
        ("claude_code_litellm/fallback_2_1_197", "claude-sonnet-4-5-20250929"),
        ("codex_litellm/busy_fallback", "gpt-5-codex"),
        ("copilot_cli_litellm/fallback_messages", "claude-sonnet-4.5"),
    ],
)
async def test_the_model_that_an_assistant_asked_for_is_a_tag(run: str, asked: str) -> None:
    """If another model served a call, the assistant's is kept as a tag, in any order."""
    capture = read(PLACE / f"{run}.jsonl.gz")
    requests = whole_requests(capture)
    for order in (requests, requests[::-1]):
        calls = calls_that_count(await records_after(order, pause=0.0, directory=None))
        tags = {call.status: call.tags.get("asked_model") for call in calls}
        assert {"error": None, "ok": asked} == tags


@pytest.mark.parametrize("pause", part([0.0, LATE_S], every=2), ids=["in time", "late"])
async def test_two_attempts_below_one_span_stay_two_failures(pause: float) -> None:
    """The assistant's span and its two events fit either attempt, so each of them may be joined first."""
    capture, chance = read(PLACE / "claude_code_litellm/failure.jsonl.gz"), random.Random(f"{SEED} {pause}")
    reports = [
        piece
        for request in capture.requests
        if not request.path.endswith("/metrics")
        for piece in pieces_of(request)
        if any(word in piece.body for word in (b"api_error", b"api_retries_exhausted"))
    ]
    assert len(reports) == 6
    for order in chance.sample(list(permutations(reports)), 400 if IS_LONG else 12):
        assert_are_the_journals(await records_after(order, pause=pause, directory=None), capture)


@pytest.mark.parametrize("pause", [0.0, LATE_S], ids=["in time", "late"])
async def test_two_attempts_shortly_after_each_other_stay_two_failures(pause: float) -> None:
    """
    LiteLLM's second attempt begins 0.6 s after the span of the first one, so it may be joined with that span before
    its own arrives. In no order may a failure then count twice.
    """
    capture, chance = read(PLACE / "codex_litellm/failure.jsonl.gz"), random.Random(f"{SEED} {pause}")
    sent = [each for each in capture.requests if not each.path.endswith("/metrics")]
    reports = [piece for each in sent for piece in pieces_of(each) if await failures_in(piece)]
    assert len(reports) == 6
    first, second, *of_litellm = sorted(reports, key=is_of_litellm)
    wrong_pairs = [
        [of_litellm[2], first, *of_litellm[:2], second],
        [first, of_litellm[2], second, *of_litellm],
    ]
    for order in [*wrong_pairs, *chance.sample(list(permutations(reports)), 400 if IS_LONG else 12)]:
        calls = calls_that_count(await records_after(order, pause=pause, directory=None))
        assert [call.status for call in calls] == ["error", "error"]


async def failures_in(request: Request) -> int:
    outcome, _ = await normalised(request)
    return sum(isinstance(record, Inference) and record.status == "error" for record in outcome.records)


@pytest.mark.proof
@pytest.mark.parametrize("pause", [0.0, LATE_S], ids=["in time", "late"])
@pytest.mark.parametrize("path", FILES, ids=captured)
async def test_in_twenty_random_orders(path: Path, pause: float, tmp_path: Path) -> None:
    """Each item may arrive by itself or with others, once or twice, and the server restarts after each request."""
    capture = read(path)
    orders = orders_of_items(capture, random.Random(f"{SEED} {path.name} {pause}"))
    for number, order in zip(range(20), orders, strict=False):
        found = await records_after(order, pause=pause, directory=tmp_path / str(number))
        assert_are_the_journals(found, capture)


@pytest.mark.proof
@pytest.mark.parametrize("pause", [0.0, LATE_S], ids=["in time", "late"])
@pytest.mark.parametrize("path", FILES, ids=captured)
async def test_over_two_gateways_of_which_one_is_killed(
    path: Path, pause: float, request: pytest.FixtureRequest
) -> None:
    """On PostgreSQL, items reach two gateways in turn. After half of them, a new process replaces one gateway."""
    capture = read(path)
    orders = orders_of_items(capture, random.Random(f"{SEED} killed {path.name} {pause}"))
    expected = (
        len(capture.told),
        sum(call.input_tokens or 0 for call in capture.told),
        sum(call.output_tokens or 0 for call in capture.told),
    )
    for _, order in zip(range(2), orders, strict=False):
        gateways = SharedGateways(schemas_of(POSTGRES, request)())
        await gateways.start()
        for number, each in enumerate(order):
            if number == len(order) // 2:
                await gateways.kill()
            await gateways.take(each)
            await gateways.pass_time(pause)
        _, counted = await gateways.judged()
        assert expected == counted


# -- equal calls at the same time ----------------------------------------------------------------------------

# UUIDs, ids of responses and requests with a prefix, and in quotes the ids of responses, traces and spans
_UUID = rb"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
_IDS = re.compile(
    rb"(?:resp|req|msg)_[\w-]{16,}|%b|(?<=[\"'])(?:[0-9a-f]{16}|[0-9a-f]{24}|[0-9a-f]{32})(?=[\"'])" % _UUID
)


def of_another_person(request: Request, number: int) -> Request:
    """Return the reports of an equal call at the same time, which has other ids."""
    is_protobuf = request.body[:1] == b"\n"
    return replace(request, body=(_in_spans if is_protobuf else _with_other_ids)(request.body, number))


def _with_other_ids(text: bytes, number: int) -> bytes:
    digits = b"0123456789abcdef"
    turned = bytes.maketrans(digits, digits[number:] + digits[:number])
    return _IDS.sub(lambda found: found[0].translate(turned), text)


def _in_spans(body: bytes, number: int) -> bytes:
    message = ExportTraceServiceRequest.FromString(body)
    spans = [
        span for resource in message.resource_spans for scope in resource.scope_spans for span in scope.spans
    ]
    for span in spans:
        span.trace_id = bytes(byte ^ number for byte in span.trace_id)
        span.span_id = bytes(byte ^ number for byte in span.span_id)
        span.parent_span_id = bytes(byte ^ number for byte in span.parent_span_id)
        for attribute in span.attributes:
            if attribute.value.HasField("string_value"):
                text = attribute.value.string_value.encode()
                attribute.value.string_value = _with_other_ids(text, number).decode()
    return message.SerializeToString()


@pytest.mark.parametrize(
    "run",
    ["gemini_cli_litellm/prompt", "copilot_cli_litellm/responses", "copilot_cli_litellm/failure_messages"],
)
async def test_parallel_equal_calls_stay_calls_of_their_own(run: str) -> None:
    """
    People make equal calls at the same time, and no session joins their reports. Each call is one record, although
    one person may send no telemetry, and another may call without the gateway.
    """
    capture, chance = read(PLACE / f"{run}.jsonl.gz"), random.Random(f"{SEED} {run}")
    requests = whole_requests(capture)
    for _ in range(examples(100)):
        people = chance.randint(1, 3)
        reports = [of_another_person(request, number) for number in range(people) for request in requests]
        silent = chance.choice(["nobody", "an assistant", "the gateway"])
        if silent != "nobody":
            speaking = [
                request for request in requests if is_of_litellm(request) == (silent == "an assistant")
            ]
            reports += [of_another_person(request, people) for request in speaking]
        chance.shuffle(reports)
        pause = chance.choice([0.0, LATE_S])
        calls = calls_that_count(await records_after(reports, pause=pause, directory=None))
        expected = list(capture.told) * (people + (silent != "nobody"))
        assert Counter(map(_outcome, expected)) == Counter(map(_outcome, calls)), silent


async def test_a_laptop_joins_no_failure_of_others() -> None:
    """
    Failures have no counts, and Copilot sends no session. So the holder of a laptop's key could claim failures of
    others, and see the facts of the gateway about them. Such a failure stays a call of its own.
    """
    capture = read(PLACE / "copilot_cli_litellm/failure.jsonl.gz")
    requests = whole_requests(capture)
    claims = [request if is_of_litellm(request) else replace(request, bearer=LAPTOP) for request in requests]
    for order in (claims, claims[::-1]):
        calls = calls_that_count(await records_after(order, pause=0.0, directory=None))
        assert {"ok": 2, "error": 4} == Counter(call.status for call in calls)


def is_of_litellm(request: Request) -> bool:
    return request.format == "litellm" or b"litellm" in request.body


def _outcome(call: Call | Inference) -> tuple[str, int]:
    return call.status, call.input_tokens or 0
