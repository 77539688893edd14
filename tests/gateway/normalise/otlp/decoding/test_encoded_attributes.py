"""Attributes decoded from the cache or by the fast path equal protobuf's own decoding of the same bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from gateway.normalise.otlp.decoding import protobuf_decoder, wire
from tests.gateway.normalise.otlp.trace_requests import trace_requests
from tests.rounds import IS_LONG, some

Reading = dict[str, Any] | str
CHANGES = 2  # number of changed copies of each encoded attribute


def read(raw: bytes) -> Reading:
    try:
        return protobuf_decoder.attributes_from_encoded([raw])
    except (DecodeError, UnicodeDecodeError):
        return "unreadable"


def read_by_protobuf(raw: bytes) -> Reading:
    try:
        name, value = protobuf_decoder._decode_attribute_of_any_layout(raw)
    except (DecodeError, UnicodeDecodeError):
        return "unreadable"
    return {name: value} if name else {}


def pairs() -> list[bytes]:
    """Return the attributes of all recorded spans and resources of real clients."""
    found: set[bytes] = set()
    for encoded in trace_requests():
        for group in wire.TracesRequest.FromString(encoded).resource_spans:
            found.update(group.resource.attributes)
            found.update(
                pair for scope in group.scope_spans for span in scope.spans for pair in span.attributes
            )
    return sorted(found)


def changed(raw: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield copies with a byte added, removed or changed, a truncated end, or a repeated piece."""
    for _ in range(CHANGES):
        at, byte = (
            rng.randrange(len(raw)),
            bytes([rng.choice((0, 1, 2, 0x0A, 0x12, 0x18, 0x21, 0x7F, 0x80, 0xFF))]),
        )
        yield raw[:at] + byte + raw[at + 1 :]
        yield raw[:at] + byte + raw[at:]
        yield raw[:at] + raw[at + 1 :]
        yield raw[:at]
        yield raw + raw[at:]


@pytest.mark.parametrize("conversation", [protobuf_decoder._CONVERSATION, 1])
def test_damaged_pairs_are_read_as_protobuf_reads_them(
    conversation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The fast path, the cache and protobuf give the same result for each attribute (also a damaged one), in any
    order, or all reject it. The check for messages of a conversation gives that result as well, even if it starts
    at the first attribute.
    """
    seed = random.randrange(2**32) if IS_LONG else 1
    rng = random.Random(seed)
    whole = some(pairs(), every=8)
    tried = [raw for pair in whole for raw in (pair, *changed(pair, rng))]
    expected = [repr(read_by_protobuf(raw)) for raw in tried]
    for cache in (protobuf_decoder._known, protobuf_decoder._heads, protobuf_decoder._seen_keys):
        cache.clear()
    assert expected == [repr(read(raw)) for raw in tried]  # names that were not seen before
    for raw in whole:
        read(raw)  # the names recur, so the reader remembers them
    monkeypatch.setattr(protobuf_decoder, "_CONVERSATION", conversation)
    for raw, reading in zip(tried, expected, strict=True):
        assert [reading] * 2 == [repr(read(raw)) for _ in range(2)], (seed, raw)


@pytest.mark.parametrize("tail", [b"\x03\x18\x05\x10", b"\x04\x18\x85\x05\x10", b"\x04\x18\x05\x10\x01"])
def test_bytes_after_a_number_are_never_part_of_it(tail: bytes) -> None:
    """
    If more bytes follow a complete number, they are another field or an error, and never part of the number.
    """
    raw = b"\x0a\x06number\x12" + tail
    expected = read_by_protobuf(raw)
    read(KeyValue(key="number", value=AnyValue(int_value=5)).SerializeToString())
    assert expected == read(raw)


def test_only_whole_texts_have_an_opening() -> None:
    """The opening of each size is that of a text of this size, and no text has the other sizes."""
    openings: dict[int, bytes] = {}
    for size in (*range(300), protobuf_decoder._LONGEST_OPENING - 5):
        value = KeyValue(value=AnyValue(string_value="x" * size)).SerializeToString()[1:]
        openings[len(value)] = value[: len(value) - size]
    sizes = (*range(300), protobuf_decoder._LONGEST_OPENING, protobuf_decoder._LONGEST_OPENING + 1)
    assert {2, 129, 132} <= {*sizes} - openings.keys()
    for size in sizes:
        assert openings.get(size, b"\xff\xff\xff") == protobuf_decoder._openings[size]
