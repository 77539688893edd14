"""Encoding a delivery's spans in another process: the same bytes as here, already compressed if they are to be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from exporters.http import compression
from exporters.otlp.spans import SpanEncoder
from spool.record import Inference

LEAST: Final = 32  # spans that are worth the way

# Makes of `packed` spans what `encode` returns, joined; None if they are to be encoded here.
EncodeElsewhere = Callable[[bytes], Awaitable[bytes | None]]
Spans = Sequence[tuple[Inference, float]]

_SIZE: Final = 8
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[bool, list[tuple[Inference, float]]])
_spans = SpanEncoder()


class Encoded(NamedTuple):
    """A request as it is sent, and how large it is before compression."""

    body: bytes
    size: int
    is_compressed: bool
    items: int | None = None  # spans or data points in it; None: one per record


def packed(spans: Spans, *, compresses: bool) -> bytes:
    return _encoder.encode((compresses, spans))


def encode(payload: bytes) -> Sequence[bytes]:
    """In the other process: the size of the request, and the request."""
    compresses, spans = _decoder.decode(payload)
    body = _spans.request(spans)
    size = len(body)
    if compresses and size >= compression.MIN_BYTES:
        body = compression.gzipped(body)
    return size.to_bytes(_SIZE, "little"), body


def unpacked(answer: bytes, *, compresses: bool) -> Encoded:
    """Unpack an answer of `encode`."""
    size = int.from_bytes(answer[:_SIZE], "little")
    return Encoded(answer[_SIZE:], size, compresses and size >= compression.MIN_BYTES)
