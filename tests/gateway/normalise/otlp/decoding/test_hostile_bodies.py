"""Hostile bodies that inflate on decoding: limited in memory, in items, and in work per turn."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import pytest

from gateway.core.errors import BadPayload, Refusal
from gateway.normalise import otlp
from gateway.normalise.otlp import Signal
from gateway.normalise.otlp.decoding import protobuf_decoder, wire
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.payload.body_limits import ITEM_BYTES, BodyReadLimits
from tests.gateway.normalise.otlp.items import finished
from tests.rounds import as_proof, part, reduced

MIB = 1 << 20
SIGNALS: list[Signal] = ["traces", "metrics", "logs"]
NAMES = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}
EIGHTH = reduced(MIB, by=8)  # the whole in proofs
every_signal = pytest.mark.parametrize("signal", SIGNALS)


def field(number: int, payload: bytes) -> bytes:
    return wire.encode_varint(number << 3 | 2) + wire.encode_varint(len(payload)) + payload


def of_items(items: bytes) -> bytes:
    """Wrap items in a protobuf request with one resource and one scope."""
    return field(1, field(2, items))


def in_json(signal: Signal, items: str) -> bytes:
    outer, middle, inner = NAMES[signal]
    return f'{{"{outer}":[{{"{middle}":[{{"{inner}":[{items}]}}]}}]}}'.encode()


def read(signal: Signal, body: bytes, *, json: bool = False, max_items: int = 250_000) -> ReadOutcome:
    return finished(otlp.normalise_otlp(signal, body, json=json, options=ReadOptions(max_items=max_items)))


# Before the limits, each of these bodies took 100 to 700 times its size in memory, or seconds without a turn
# of the event loop.
BOMBS = {
    "zeros": bytes(4 * EIGHTH),
    "zeros in a resource": field(1, bytes(4 * EIGHTH)),
    "fields nobody knows": field(1, b"\x18\x00" * (2 * EIGHTH)),
    "spans": of_items(b"\x12\x00" * (2 * EIGHTH)),
    "resources": b"\x0a\x00" * (2 * EIGHTH),
    "scopes": field(1, b"\x12\x00" * (2 * EIGHTH)),
    "attributes": of_items(field(2, b"\x4a\x00" * (2 * EIGHTH))),
    "events": of_items(field(2, b"\x5a\x00" * (2 * EIGHTH))),
    "links": of_items(field(2, b"\x6a\x00" * (2 * EIGHTH))),
    "attributes of a resource": field(1, field(1, b"\x0a\x00" * (2 * MIB))),
}


@pytest.mark.proves("A small request uses much memory or time")
@pytest.mark.parametrize("name", [as_proof(name) if name == "resources" else name for name in BOMBS])
def test_a_bomb_is_refused_before_it_unfolds(name: str) -> None:
    """
    Decoding a hostile protobuf body takes no multiple of the body's size, whatever its fields are, and no
    step is long.
    """
    body = BOMBS[name]
    longest = 0.0
    tracemalloc.start()
    began = time.thread_time()
    with pytest.raises(Refusal):
        for _ in otlp.normalise_otlp(
            "traces", body, json=False, options=ReadOptions(max_items=reduced(50_000, by=8))
        ):
            now = time.thread_time()
            longest, began = max(longest, now - began), now
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(body) + 8 * EIGHTH + MIB
    # The limit is one second of CPU time under tracing. Before the limits existed, the body took several seconds.
    assert longest < 1.0


MANY_IN_JSON = {
    "spans": '{"resourceSpans":[{"scopeSpans":[{"spans":[@]}]}]}',
    "resources": '{"resourceSpans":[@]}',
    "scopes": '{"resourceSpans":[{"scopeSpans":[@]}]}',
    "attributes": '{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[@]}]}]}]}',
    "events": '{"resourceSpans":[{"scopeSpans":[{"spans":[{"events":[@]}]}]}]}',
    "attributes of a resource": '{"resourceSpans":[{"resource":{"attributes":[@]}}]}',
}


@pytest.mark.parametrize("name", MANY_IN_JSON)
@pytest.mark.parametrize("item", part(["{}", "null"], every=2))
def test_a_bomb_in_json_is_refused_before_it_unfolds(name: str, item: str) -> None:
    """
    A JSON body of millions of tiny values is refused early. Before, each value took 70 bytes for its position.
    """
    body = MANY_IN_JSON[name].replace("@", ",".join([item] * 400_000)).encode()
    tracemalloc.start()
    with pytest.raises(Refusal) as refused:
        read("traces", body, json=True, max_items=20_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 413 == refused.value.status
    assert peak < 2 * len(body) + 20 * MIB


def test_points_of_one_metric_are_bounded_in_json() -> None:
    """Each point of a metric counts as an item, because one metric may have any number of points."""
    points = ",".join(["{}"] * 250_001)
    body = in_json("metrics", f'{{"name":"gen_ai.client.token.usage","sum":{{"dataPoints":[{points}]}}}}')
    with pytest.raises(Refusal, match="more than 250000 items"):
        read("metrics", body, json=True)


@pytest.mark.parametrize("opened", ["[", '{"a":', '[{"a":'])
def test_deep_nesting_in_a_large_body_is_refused(opened: str) -> None:
    """Deep nesting is refused in members that are read and in members that are skipped."""
    for start in ('{"resourceSpans":', '{"other":', '{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":'):
        with pytest.raises(BadPayload):
            read("traces", (start + opened * EIGHTH).encode(), json=True)


NESTED = {
    "an attribute's list": field(
        9, field(1, b"gen_ai.response.finish_reasons") + field(2, field(5, b"\x0a\x00" * EIGHTH))
    ),
    "a list that nobody reads": field(9, field(1, b"x") + field(2, field(5, b"\x0a\x00" * EIGHTH))),
    "an event": field(11, field(2, b"exception") + b"\x1a\x00" * EIGHTH),
    "a link": field(13, b"\x22\x00" * EIGHTH),
}


@pytest.mark.parametrize("name", NESTED)
def test_what_one_item_holds_is_not_unfolded(name: str) -> None:
    """A span with lists of a million empty values is read, and the lists are skipped."""
    tokens = field(9, field(1, b"gen_ai.usage.input_tokens") + field(2, b"\x18\x07"))
    calls = field(9, field(1, b"gen_ai.operation.name") + field(2, field(1, b"chat")))
    body = of_items(field(2, calls + tokens + NESTED[name]))
    found = read("traces", body)
    assert [7] == [record.input_tokens for record in found.records]  # type: ignore[union-attr]


@every_signal
@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_items_of_a_request_are_bounded(signal: Signal, encoding: str) -> None:
    """
    Resources, scopes and items together are limited. A resource, a scope and eight items count as ten. The
    refusal of an eleventh says what to do.
    """

    def body(count: int) -> bytes:
        return (
            in_json(signal, ",".join(["{}"] * count)) if encoding == "json" else of_items(b"\x12\x00" * count)
        )

    read(signal, body(8), json=encoding == "json", max_items=10)
    with pytest.raises(
        Refusal, match=r"more than 10 items \(server.max_items\); send smaller batches"
    ) as refused:
        read(signal, body(9), json=encoding == "json", max_items=10)
    assert refused.value.status == 413
    assert refused.value.type == "too_many_items"


@every_signal
@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_small_items_are_held_for_what_they_cost(signal: Signal, encoding: str) -> None:
    """
    Each item counts with its real memory, so many tiny items reach the in-flight limit like one large body.
    """
    held: list[int] = []
    count = reduced(50_000, by=5)
    body = in_json(signal, ",".join(["{}"] * count)) if encoding == "json" else of_items(b"\x12\x00" * count)
    finished(
        otlp.normalise_otlp(signal, body, json=encoding == "json", options=ReadOptions(), hold=held.append)
    )
    assert 0.9 < (sum(held) + len(body)) / (count * ITEM_BYTES) < 1.1


@every_signal
@pytest.mark.parametrize("number", [0, 1 << 29])
def test_field_numbers_that_cannot_be_are_refused(signal: Signal, number: int) -> None:
    """Invalid field numbers are refused at once, in split bodies and in bodies that are parsed whole."""
    for size in (1, MIB):
        with pytest.raises(BadPayload):
            read(signal, field(number, b"") * size)


def test_a_metric_is_cut_at_its_points() -> None:
    """A metric is split between its points, and each piece repeats the metric's fields."""
    point = field(1, b"\x31" + (5).to_bytes(8, "little") + b"\x19" + (10).to_bytes(8, "little"))
    data = b"\x10\x01\x18\x01" + point * 60_000
    metric = field(1, b"cline.tokens.output.total") + field(7, data)
    parts = list(protobuf_decoder.metrics(of_items(field(2, metric))))
    assert len(parts) > 10
    points = [point for part in parts for _, point in part.items]
    assert {("cline.tokens.output.total", False, 5)} == {
        (one.name, one.cumulative, one.value) for one in points
    }
    assert list(range(60_000)) == [place for part in parts for place, _ in part.items]


def longest_share(work: Iterator[object]) -> float:
    """Return the longest step as a share of the total CPU time, with garbage collection off."""
    gc.disable()
    try:
        times = [time.thread_time(), *[time.thread_time() for _ in work]]
    finally:
        gc.enable()
    return max(later - sooner for sooner, later in pairwise(times)) / (times[-1] - times[0])


def many_names(spans: int, names: int) -> bytes:
    made = []
    for number in range(spans):
        pairs = [
            field(9, field(1, f"n{number}.{one}".encode()) + field(2, field(1, b"v"))) for one in range(names)
        ]
        made.append(field(2, field(1, (number + 1).to_bytes(16, "big")) + b"".join(pairs)))
    return of_items(b"".join(made))


@pytest.mark.parametrize(("spans", "names"), [(1, 100_000), (10, 20_000), (2_000, 100)])
def test_attributes_are_read_in_turns(spans: int, names: int) -> None:
    """
    Attributes are decoded in several steps, and no step is long, however unknown names are distributed.
    Unknown names are the slowest.
    """
    print(
        share := longest_share(
            protobuf_decoder.traces(many_names(spans, reduced(names, by=4)), BodyReadLimits())
        )
    )
    assert share < 1 / 3
