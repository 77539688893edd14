"""
Captured assistants behind the LiteLLM proxy, and both report every call. In any order, each call is one record with
the model, the counts and the cost that LiteLLM served.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spool.record import Correction, Inference, Record
from tests.clients.capture import PLACE, Capture, read
from tests.clients.journal import Call
from tests.integration.order.running import HOLD_S, SEED, Gateway, Request
from tests.integration.order.test_captured_agents import dealt, pieces_of
from tests.rounds import examples

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
    assert {call.response_model for call in calls} <= answered
    spent = sum((Decimal(call.cost or 0) for call in calls if call.status == "ok"), Decimal(0))
    assert capture.cost is not None
    assert capture.cost.quantize(MILLIONTH) == spent.quantize(MILLIONTH)


def _figures(call: Call | Inference) -> tuple[Any, ...]:
    counts = (call.input_tokens, call.output_tokens, call.cache_read_tokens)
    return call.status, call.request_model, *[count or 0 for count in counts]


@pytest.mark.parametrize("pause", [0.0, LATE_S], ids=["in time", "late"])
@pytest.mark.parametrize("path", FILES, ids=captured)
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


# -- equal calls at the same time ----------------------------------------------------------------------------

# UUIDs, ids of responses and requests with a prefix, and in JSON the ids of responses, traces and spans
_UUID = rb"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
_IDS = re.compile(
    rb"(?:resp|req)_[\w-]{16,}|%b|(?<=\")(?:[0-9a-f]{16}|[0-9a-f]{24}|[0-9a-f]{32})(?=\")" % _UUID
)


def of_another_person(request: Request, number: int) -> Request:
    """Return the reports of an equal call at the same time, which has other ids."""
    if not number:
        return request
    body = _IDS.sub(lambda found: _with_other_digits(found[0], number), request.body)
    return Request(request.format, _with_other_span_ids(body, number) if body[:1] == b"\n" else body)


def _with_other_digits(id: bytes, number: int) -> bytes:
    digits = b"0123456789abcdef"
    turned = digits[number:] + digits[:number]
    return id.translate(bytes.maketrans(digits, turned))


def _with_other_span_ids(body: bytes, number: int) -> bytes:
    message = ExportTraceServiceRequest.FromString(body)
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                span.trace_id = bytes(byte ^ number for byte in span.trace_id)
                span.span_id = bytes(byte ^ number for byte in span.span_id)
                span.parent_span_id = bytes(byte ^ number for byte in span.parent_span_id)
    return message.SerializeToString()


@pytest.mark.parametrize(
    "path",
    [PLACE / "gemini_cli_litellm/prompt.jsonl.gz", PLACE / "copilot_cli_litellm/responses.jsonl.gz"],
    ids=captured,
)
async def test_parallel_equal_calls_stay_calls_of_their_own(path: Path) -> None:
    """
    People make equal calls at the same time, and no session joins their reports. Each call is one record, although
    one person may send no telemetry, and another may call without the gateway.
    """
    capture, chance = read(path), random.Random(f"{SEED} {path.name}")
    requests = whole_requests(capture)
    for _ in range(examples(100)):
        people = chance.randint(1, 3)
        reports = [of_another_person(request, number) for number in range(people) for request in requests]
        silent = chance.choice(["nobody", "an assistant", "the gateway"])
        is_log = silent == "the gateway"
        if silent != "nobody":
            reports += [
                of_another_person(request, people)
                for request in requests
                if (request.format == "litellm") != is_log
            ]
        chance.shuffle(reports)
        calls = calls_that_count(
            await records_after(reports, pause=chance.choice([0.0, LATE_S]), directory=None)
        )
        copies = people + (silent != "nobody")
        assert Counter(call.input_tokens for call in list(capture.told) * copies) == Counter(
            call.input_tokens for call in calls
        ), silent
