"""
Ids that are used again: short response ids, call ids of several attempts, and ids that callers choose. Two spans
of one scope, neither above the other, are two calls. Logs, and spans of other scopes in the trace, still join.

A long response id is of one response, so all spans that state it are one call.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spool.identity import dedup_key_of_response_id, dedup_key_of_span
from spool.record import Correction, Inference
from tests.gateway.normalise.formats.payloads import case
from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import span, traces
from tests.integration.order.running import (
    HOLD_S,
    ORDERS,
    SEED,
    Gateway,
    Request,
    Row,
    cut,
    told,
    told_in_every_order,
)
from tests.integration.order.test_further_names import callback, cloud_event
from tests.rounds import as_proof, part

HISTORIES = 60 * ORDERS
FAILED = [2399, 7448]  # seeds of random rounds that found a defect in the past
STEP = 4 * SECOND
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "toll-1"}
OPENLLMETRY, OPENINFERENCE, LITELLM = (
    "opentelemetry.instrumentation.openai",
    "openinference.openai",
    "litellm",
)
SCOPES = (OPENLLMETRY, OPENINFERENCE, LITELLM)
UUIDS = [f"{number:08x}-aaaa-4bbb-8ccc-{number:012x}" for number in (1, 2)]
REUSED = {
    "gen_ai.response.id": ["chatcmpl-7", "7", f"chatcmpl-{'7' * 15}"],
    "request_id": ["7", *UUIDS],
    "gen_ai.request.id": [f"req_{'7' * 30}"],
    "client_request_id": UUIDS,
    "litellm.call_id": UUIDS,
}
LONG = f"chatcmpl-{'7' * 16}"  # the shortest response id that does not count as short
COUNTS = [None, (0, 0), (12, 3), (12, 3), (40, 3)]


@dataclass(frozen=True)
class Call:
    """A span of a call. `number` is its span id."""

    number: int
    trace: int = 1
    scope: str = OPENLLMETRY
    name: str = "gen_ai.response.id"  # the name of the attribute that has the id; "" if the span has none
    id: str = "chatcmpl-7"
    counts: tuple[int, int] | None = (12, 3)
    failed: bool = False
    embeds: bool = False
    start: int = NOW
    parent: int | None = None
    service: str = "shop"

    @property
    def key(self) -> bytes:
        """The id under which the call of this span is known: its dedup key, or a further name of it."""
        of_own = dedup_key_of_span(f"{self.trace:032x}", f"{self.number:016x}")
        return dedup_key_of_response_id(self.id) if self.name == "unique" else of_own

    @property
    def span(self) -> dict[str, Any]:
        said: dict[str, Any] = dict(CHAT)
        if self.embeds:
            said["gen_ai.operation.name"] = "aembedding" if self.scope == LITELLM else "embeddings"
        if self.counts is not None:
            said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"] = self.counts
        if self.name:
            said["gen_ai.response.id" if self.name == "unique" else self.name] = self.id
        changes: dict[str, Any] = {"traceId": f"{self.trace:032x}", "start": self.start}
        if self.failed:
            changes["status"], said["error.type"] = {"code": 2}, "timeout"
        return span(self.number, said, parent=self.parent, **changes)


def request(*calls: Call) -> Request:
    """Return one OTLP request. The calls have one scope and one service."""
    spans = [call.span for call in calls]
    body = traces(*spans, scope=calls[0].scope, resource={"service.name": calls[0].service})
    return Request("otlp/traces", json.dumps(body).encode())


def litellm(call: Call) -> Request:
    """Return LiteLLM's log of a call."""
    input_tokens, output_tokens = call.counts or (None, None)
    said: dict[str, Any] = {
        "id": call.id, "litellm_call_id": UUIDS[0], "call_type": "acompletion", "model": "toll-1",
        "startTime": call.start / SECOND, "endTime": call.start / SECOND + 1,
        "prompt_tokens": input_tokens, "completion_tokens": output_tokens, "total_tokens": None,
        "trace_id": f"{call.trace:032x}",
    }  # fmt: skip
    if call.name != "gen_ai.response.id":
        said["litellm_call_id"] = call.id
    if call.failed:
        said |= {"status": "failure", "error_information": {"error_class": "Timeout"}}
    if call.embeds:
        said["call_type"] = "aembedding"
    return callback(**said)


def envoy(call: Call) -> Request:
    """Return the line of Envoy's access log about a call whose caller chose the id."""
    line = {**case("envoy_ai_gateway", "access-log-line"), "x-request-id": call.id}
    start = datetime.fromtimestamp(call.start // SECOND, UTC).isoformat().removesuffix("+00:00")
    line["start_time"] = f"{start}.{call.start % SECOND // 1_000_000:03}Z"
    input_tokens, output_tokens = call.counts or (None, None)
    line |= {"gen_ai.usage.input_tokens": input_tokens, "gen_ai.usage.output_tokens": output_tokens}
    return Request(
        "envoy_ai_gateway", json.dumps(line | {"response_code": 504 if call.failed else 200}).encode()
    )


def details(call: Call) -> Request:
    """Return the event of a call that has the ids of its span."""
    encoded = call.span
    record = {
        "timeUnixNano": encoded["endTimeUnixNano"], "eventName": "gen_ai.client.inference.operation.details",
        **{name: encoded[name] for name in ("traceId", "spanId", "attributes")},
    }  # fmt: skip
    logs = {"resourceLogs": [{"scopeLogs": [{"scope": {"name": call.scope}, "logRecords": [record]}]}]}
    return Request("otlp/logs", json.dumps(logs).encode())


def counted(requests: Sequence[Request], restarts: Sequence[bool] = (), pauses: Sequence[float] = ()) -> int:
    return calls_in(told(requests, restarts, pauses)[0])


def call_counts(requests: Sequence[Request], pauses: Sequence[float] = ()) -> set[int]:
    """Return the numbers of calls after each order, each request twice, with and without restarts."""
    return {calls_in(rows) for rows, _ in told_in_every_order(requests, pauses)}


def calls_in(rows: Sequence[Row]) -> int:
    """Return the number of calls, without calls that a correction took back."""
    calls = {row["id"] for row in rows if row["kind"] == "inference" and not row["shadow"]}
    return len(calls - {row["corrects"] for row in rows if row.get("reason") == "same_call"})


# --- Calls that stay apart -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pauses", [as_proof(pytest.param(())), (HOLD_S + 1.0,)])
@pytest.mark.parametrize(
    "other",
    [
        Call(2, trace=2, service="desk", start=NOW + SECOND // 25),
        Call(2, trace=2, service="desk"),
        Call(2, start=NOW + SECOND // 25),
        Call(2, counts=None),
        Call(2, trace=2, scope=OPENINFERENCE),
    ],
    ids=["other trace", "same start", "same trace", "without counts", "other scope and trace"],
)
def test_two_spans_with_one_short_id_are_two_calls(other: Call, pauses: Sequence[float]) -> None:
    assert {2} == call_counts([request(Call(1)), request(other)], pauses)


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("name", [name for name in REUSED if name != "gen_ai.response.id"])
def test_attempts_with_one_id_are_several_calls(name: str, failed: bool) -> None:
    """Two spans of attempts under one call id, in one request and in two, are two calls."""
    calls = [
        Call(number, scope=LITELLM, name=name, id=REUSED[name][0], counts=(0, 0), failed=failed, start=start)
        for number, start in ((1, NOW), (2, NOW + SECOND))
    ]
    assert 2 == counted([request(*calls)])
    assert 2 == counted([request(calls[0]), request(calls[1])], [True])


def test_equal_embeddings_with_one_call_id_are_several_calls() -> None:
    """A caller may choose LiteLLM's call id. OpenMeter's event has only this id, and joins one of the calls."""
    calls = [
        Call(
            number,
            scope=LITELLM,
            name="litellm.call_id",
            id=UUIDS[0],
            counts=(41, 0),
            embeds=True,
            start=NOW + number * SECOND,
        )
        for number in (1, 2)
    ]
    event = cloud_event(id=UUIDS[0], data={"model": "toll-1", "prompt_tokens": 41, "completion_tokens": 0})
    for order in permutations([*map(request, calls), event]):
        assert 2 == counted(order)


def test_a_thousand_calls_of_ollama() -> None:
    """Ollama answers ten calls a second, with ids from chatcmpl-0 to chatcmpl-998 at random."""
    chance = Random(SEED)
    calls = [
        Call(
            number,
            trace=number,
            id=f"chatcmpl-{chance.randrange(999)}",
            counts=(chance.choice([12, 20]), chance.choice([3, 40])),
            start=NOW + number * SECOND // 10,
        )
        for number in range(1, 1001)
    ]
    batches = [request(*calls[first : first + 50]) for first in range(0, 1000, 50)]
    assert 1000 == counted(batches, pauses=[5.0])


# --- Reports that join ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", part([-STEP + SECOND, 0, STEP - SECOND], every=2))
@pytest.mark.parametrize("failed", part([False, True], every=2))
@pytest.mark.parametrize(
    ("log", "call"),
    [(litellm, Call(1)), (envoy, Call(1, name="request_id", id=UUIDS[0])), (details, Call(1))],
)
def test_the_log_of_a_gateway_joins_the_span(log: Any, call: Call, failed: bool, apart: int) -> None:
    """A gateway's log joins the span that states the same short or shared id, if both start less than 4 s apart."""
    call = Call(**{**vars(call), "failed": failed, "counts": (0, 0) if failed else call.counts})
    logged = log(Call(**{**vars(call), "start": call.start + apart}))
    for pauses in ((), (HOLD_S + 1.0,)):
        assert {1} == call_counts([request(call), logged], pauses)


def test_one_log_joins_one_of_two_spans() -> None:
    """If two spans state the id of one log, the log joins one of them, and two calls remain."""
    spans = [request(Call(1)), request(Call(2, trace=2, start=NOW + 3 * SECOND))]
    for pauses in ((), (HOLD_S + 1.0,)):
        assert {2} == call_counts([*spans, litellm(Call(1))], pauses)


@pytest.mark.parametrize("parent", [1, 9])
@pytest.mark.parametrize("failed", part([False, True], every=2))
def test_spans_of_one_trace_join(parent: int, failed: bool) -> None:
    """
    An SDK's span below or next to a framework's span in the same trace is one call with it. They arrive in two
    requests.
    """
    counts = (0, 0) if failed else (12, 3)
    outer = Call(1, parent=9, counts=counts, failed=failed)
    inner = Call(2, parent=parent, scope=OPENINFERENCE, counts=counts, failed=failed, start=NOW + 2_000_000)
    for pauses in ((), (HOLD_S + 1.0,)):
        assert {1} == call_counts([request(outer), request(inner), litellm(outer)], pauses)


def test_a_span_joins_the_span_of_its_scope_above_it() -> None:
    for order in permutations([request(Call(1)), request(Call(2, parent=1))]):
        assert 1 == counted(order * 2)
    two_below = [request(Call(1)), request(Call(2, parent=1)), request(Call(3, parent=1))]
    for order in permutations(two_below):
        assert 2 == counted(order * 2)


# --- Long ids ------------------------------------------------------------------------------------------------


def langchain(number: int, id: str) -> Request:
    """Return OpenInference's span of a LangChain model. An answer from LangChain's cache has the same form."""
    message = {"kwargs": {"response_metadata": {"id": id}, "usage_metadata": {"total_cost": 0}}}
    said = {
        "openinference.span.kind": "LLM", "llm.model_name": "toll-1",
        "llm.token_count.prompt": 12, "llm.token_count.completion": 3, "output.mime_type": "application/json",
        "output.value": json.dumps({"generations": [[{"message": message}]], "llm_output": None}),
    }  # fmt: skip
    body = traces(span(number, said, parent=9), scope="openinference.instrumentation.langchain")
    return Request("otlp/traces", json.dumps(body).encode())


REPEATS = {
    "cache of a program": (langchain(1, LONG), langchain(2, LONG)),
    "stored response": (
        request(Call(1, name="unique", id=LONG)),
        request(Call(2, trace=2, name="unique", id=LONG, service="worker", start=NOW + 90 * SECOND)),
    ),
    "client and gateway with one library": (
        request(Call(1, name="unique", id=LONG)),
        request(Call(2, trace=2, name="unique", id=LONG, service="gateway", start=NOW + SECOND // 50)),
    ),
}


@pytest.mark.parametrize("case", REPEATS)
def test_spans_of_one_scope_with_one_long_id_are_one_call(case: str) -> None:
    """
    The provider served one call. The second span repeats its response: LangChain answered from its cache, another
    process fetched a stored response, or the same library reports the client and its gateway.
    """
    for pauses in ((), (HOLD_S + 1.0,)):
        assert {1} == call_counts(REPEATS[case], pauses)


def test_one_character_less_makes_two_calls() -> None:
    assert 2 == counted([langchain(1, LONG[:-1]), langchain(2, LONG[:-1])])


# --- Histories -----------------------------------------------------------------------------------------------


def calls_of(chance: Random) -> Iterator[Call]:
    """Yield spans with few ids, counts and times, so that many of them state the same."""
    for number in range(1, chance.randrange(3, 9)):
        name = chance.choice([*REUSED, "gen_ai.response.id", "gen_ai.response.id", "unique", ""])
        # LiteLLM's start in microseconds is a name of the call
        odd = number * 1000
        yield Call(
            number,
            trace=chance.choice([1, 1, 2, number]),
            scope=chance.choice(SCOPES),
            name=name,
            id=chance.choice(REUSED.get(name, [LONG, f"chatcmpl-{number:032}"])),
            counts=chance.choice(COUNTS),
            failed=chance.random() < 0.3,
            embeds=chance.random() < 0.2,
            start=NOW + chance.choice([0, 0, SECOND // 25, SECOND, 3 * SECOND, 5 * SECOND, 8 * SECOND]) + odd,
            parent=chance.choice([None, 90, 91]),
        )


def requests_of(calls: Sequence[Call], chance: Random) -> list[Request]:
    """Return the requests with these spans and with logs, some of them twice."""
    requests = []
    for scope in SCOPES:
        of_scope = [call for call in calls if call.scope == scope]
        groups = cut(of_scope, [chance.random() < 0.5 for _ in of_scope])
        requests += [request(*group) for group in groups if group]
    for call in calls:
        if chance.random() < 0.5:
            logged = Call(**{**vars(call), "start": call.start + chance.choice([0, 0, -SECOND, 3 * SECOND])})
            requests.append(chance.choice([litellm, litellm, envoy])(logged))
        if call.embeds and chance.random() < 0.5:
            input_tokens, output_tokens = call.counts or (None, None)
            data = {"model": "toll-1", "prompt_tokens": input_tokens, "completion_tokens": output_tokens}
            requests.append(cloud_event(id=call.id, data=data))
        if chance.random() < 0.1:
            requests.append(details(call))
    requests += [each for each in requests if chance.random() < 0.3]
    chance.shuffle(requests)
    return requests


async def counting_records(
    calls: Sequence[Call], requests: Sequence[Request], chance: Random, directory: Path | None
) -> Counter[tuple[str, bytes]]:
    """
    Return the number of dedup keys per scope and record that counts their calls. Spans with one long id have one key.
    """
    gateway = Gateway(directory)
    await gateway.start()
    for each in requests:
        await gateway.take(each)
        await gateway.pass_time(chance.choice([0.0, 0.0, 1.0, HOLD_S + 1.0]))
        if directory is not None and chance.random() < 0.3:
            await gateway.restart()
    places = [gateway.place_of(call.key) for call in calls]
    records, _ = await gateway.closed()
    counted_by: dict[bytes, bytes] = {}
    for record in records:
        after = record.after if isinstance(record, Correction) else record
        if isinstance(after, Inference) and after.counted_by is not None:
            counted_by[after.id] = after.counted_by
    found = {}
    for call, place in zip(calls, places, strict=True):
        id = records[place - 1].id
        while id in counted_by:
            id = counted_by[id]
        found[call.scope, call.key] = id
    return Counter((scope, id) for (scope, _), id in found.items())


@pytest.mark.parametrize("part", [0, 1, *map(as_proof, range(2, 10))])
def test_two_spans_of_one_scope_are_never_one_record(part: int) -> None:
    """
    Random spans and logs that state the same few ids, in any order, with repeats, pauses and restarts. Only spans
    with one long response id may be one record.
    """
    for seed in [*FAILED[part::10], *range(SEED + part, SEED + HISTORIES, 10)]:
        chance = Random(seed)
        calls = list(calls_of(chance))
        requests = requests_of(calls, chance)
        with tempfile.TemporaryDirectory() as directory:
            on_disk = Path(directory) if seed % 5 == 0 else None
            found = asyncio.run(counting_records(calls, requests, chance, on_disk))
        assert [] == [each for each, n in found.items() if n > 1], f"TOLLHOUSE_ORDER_SEED={seed}"
