"""Counting items before reading gives the same results as counting while reading."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Generator
from typing import Any

import pytest

from gateway.core.errors import Refusal
from gateway.normalise import any_format, events
from gateway.normalise.formats.engine import driver
from gateway.normalise.formats.langfuse import batch
from gateway.normalise.formats.list import FORMAT_NAMES
from gateway.normalise.otlp.decoding import json_decoder, protobuf_decoder, wire
from gateway.normalise.otlp.decoding.pieces import MAX_PIECE
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.payload import body_limits
from gateway.normalise.payload.body_limits import BodyReadLimits
from tests.gateway.normalise.formats.payloads import cases, run
from tests.rounds import reduced

JUNK = [b"{}", b"null", b"1", b'{"a":', b"", b"NaN", b"[]", b"[{},{}]", b'{"batch":[{},{},{}]}', b'"x"']
LIMITS = (1, 3, 7, 40)
TOO_MANY = (413, "too_many_items")


def nothing(*_: Any, **__: Any) -> Generator[None, None, bool]:
    return False
    yield


def answer(format: str, body: bytes, most: int) -> Any:
    """Return the result of a body, or the reason of its refusal."""
    try:
        (outcome, reports), _ = run(
            any_format.normalise_body(format, body, options=ReadOptions(max_items=most))
        )
    except Refusal as refusal:
        return refusal.status, refusal.type, refusal.message
    return described(outcome), [report.key for report in reports]


def described(outcome: ReadOutcome) -> Any:
    models = [getattr(record, "request_model", None) for record in outcome.records]
    return (
        outcome.received,
        outcome.count,
        outcome.ignored,
        outcome.rejects,
        outcome.split,
        outcome.left_out,
        models,
    )


def bodies(format: str, rng: random.Random) -> list[bytes]:
    """
    Create bodies in which real items and junk are mixed in every arrangement, some compressed, some concatenated.
    """
    real = [case.body for case in cases(format) if len(case.body) < 20_000]
    found = []
    for _ in range(reduced(12, by=3)):
        items = [
            rng.choice(real if real and rng.random() < 0.4 else JUNK) for _ in range(rng.randrange(1, 12))
        ]
        flat = [item.replace(b"\n", b" ") for item in items]
        wrapped = {"records": [{"data": base64.b64encode(gzip.compress(b"\n".join(flat))).decode()}] * 2}
        found += [
            b"[" + b",".join(flat) + b"]",
            b"\n".join(flat),
            b"".join(item for item in flat if item.startswith(b"{")),
            b'{"batch":[' + b",".join(flat) + b"]}",
            json.dumps(wrapped).encode(),
            json.dumps(wrapped).replace("records", "r\\u0065cords").encode(),
        ]
    return found


def without_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (driver, batch, protobuf_decoder, events):
        monkeypatch.setattr(module, "refuse_too_many_items", nothing)
    monkeypatch.setattr(json_decoder, "may_exceed_items", nothing)


@pytest.mark.parametrize("format", FORMAT_NAMES)
def test_the_answers_of_formats_are_the_same(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    For every format, counting before reading gives the same results, for any content and any truncation.
    """
    given = [(body, most) for body in bodies(format, random.Random(format)) for most in LIMITS]
    found = [answer(format, body, most) for body, most in given]
    without_counting(monkeypatch)
    assert [answer(format, body, most) for body, most in given] == found
    assert any(each[:2] == TOO_MANY for each in found)


def field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + wire.encode_varint(len(content)) + content


FIELDS: dict[str, Any] = {
    "otlp/traces": [(1, [(2, [(2, []), (1, [])]), (1, [])])],
    "otlp/logs": [(1, [(2, [(2, []), (1, [])]), (1, [])])],
    "otlp/metrics": [(1, [(2, [(2, [(7, [(1, []), (1, [])]), (5, [(1, [])]), (9, [(1, [])])])])])],
}


def request(shape: list[Any], rng: random.Random) -> bytes:
    """
    Create a request whose messages have each field any number of times. Exactly one kind of data occurs.
    """
    found = b""
    for number, inner in [rng.choice(shape)] if len(shape) == 3 else shape:
        for _ in range(rng.randrange(4) if len(shape) < 3 else 1):
            content = request(inner, rng) if inner else b""
            found += field(number, content)
    return found


@pytest.mark.parametrize("format", FIELDS)
def test_the_answers_of_otlp_are_the_same(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    For OTLP, counting before reading gives the same result, even if a byte is changed. Invalid bodies stay
    invalid, and valid ones are accepted.
    """
    monkeypatch.setattr(wire, "MAX_PIECE", 8)  # bodies of more than 8 bytes are counted before they are read
    rng = random.Random(format)
    given = []
    for _ in range(150):
        changed = bytearray(request(FIELDS[format], rng))
        if changed and rng.random() < 0.3:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        given += [(bytes(changed), most) for most in LIMITS]
    found = [answer(format, body, most) for body, most in given]
    without_counting(monkeypatch)
    before = [answer(format, body, most) for body, most in given]
    assert any(each[:2] == TOO_MANY for each in found)
    for (body, most), now, then in zip(given, found, before, strict=True):
        is_broken = then[0] == 400  # the error comes after the first item that exceeds the limit
        assert now == then or (is_broken and now[:2] == TOO_MANY), (body, most)


def test_the_answers_of_points_in_json_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    For points in JSON, counting before reading gives the same result. Each point is an item. An unreadable
    metric is counted while reading.
    """
    rng, given = random.Random(1), []
    for _ in range(60):
        points = [
            ",".join(["{}", "null", '{"asInt":"1"}'][: rng.randrange(4)]) for _ in range(rng.randrange(5))
        ]
        metrics = [f'{{"sum":{{"dataPoints":[{some}]}}}}' if some else '{"name":1}' for some in points]
        body = f'{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{",".join(metrics)}]}}]}}]}}'
        given += [(body.encode(), most) for most in LIMITS]
    found = [answer("otlp/metrics", body, most) for body, most in given]
    without_counting(monkeypatch)
    assert [answer("otlp/metrics", body, most) for body, most in given] == found


def read_events(body: bytes, most: int) -> Any:
    try:
        found, _ = run(events.read_events(body, BodyReadLimits(most), accepts_assigned_ids=False))  # type: ignore[arg-type]
    except Refusal as refusal:
        return refusal.status, refusal.type
    return found.received, found.rejects  # type: ignore[attr-defined]


def test_the_answers_of_usage_events_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage events have a separate address. Counting before reading gives the same result there."""
    given = [(body, most) for body in bodies("kong", random.Random(2)) for most in LIMITS]
    found = [read_events(body, most) for body, most in given]
    without_counting(monkeypatch)
    assert [read_events(body, most) for body, most in given] == found


@pytest.mark.parametrize("format", [name for name in FORMAT_NAMES if not name.startswith("otlp/")])
def test_no_item_of_too_many_is_read(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a body has too many items, none is read. Otherwise a few kilobytes of compressed empty items would cost
    as much as 250,000 calls.
    """

    def fail(*_: Any) -> None:
        raise AssertionError("an item was read")

    monkeypatch.setattr(driver, "_read_item_into_outcome", fail)
    monkeypatch.setattr(batch._LangfuseBatch, "read_event", fail)
    nothings = b",".join([b"{}"] * 101)
    packed = base64.b64encode(gzip.compress(b"{}\n" * 101)).decode()
    some = [b"[%b]" % nothings, b"{}\n" * 101, b'{"batch":[%b]}' % nothings]
    some += [json.dumps({"records": [{"data": packed}]}).encode()] if format == "bedrock" else []
    for body in some if format == "langfuse" else some[:2] + some[3:]:
        assert answer(format, body, 100)[:2] == TOO_MANY


def test_no_span_of_too_many_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a request has too many spans, none is read, even if its first pieces are within the limit."""

    def fail(*_: Any) -> None:
        raise AssertionError("a piece was read")

    monkeypatch.setattr(protobuf_decoder, "_decode_spans", fail)
    body = field(1, field(2, field(2, field(5, b"n" * 38)) * 50)) * 550
    assert len(body) > 2 * MAX_PIECE
    assert answer("otlp/traces", body, 25_000)[:2] == TOO_MANY


@pytest.mark.parametrize("window", [3, 4, 100])
def test_text_divided_between_two_windows_is_found(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """
    The search finds a text even if it is divided between two windows. The event loop gets a turn between windows.
    """
    monkeypatch.setattr(body_limits, "_WINDOW", window)

    def found(body: bytes) -> tuple[bool, int]:
        turns = 0
        looking = body_limits.has_any_of_byte_strings(body, (b"sign", b"more"))
        try:
            while True:
                next(looking)
                turns += 1
        except StopIteration as done:
            return bool(done.value), turns

    for sign in (b"sign", b"more"):
        assert {True} == {found(b"x" * place + sign + b"y" * (9 - place))[0] for place in range(10)}
    is_found, turns = found(b"sigmor" + b"x" * 12)
    assert is_found is False
    assert (window < 18) == (turns > 0)
