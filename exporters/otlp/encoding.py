"""
Encoding of a delivery's spans in another process. The bytes equal those of this process, compressed if requested.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from exporters.http import compression
from exporters.otlp.spans import SpanEncoder
from spool.record import Inference

LEAST: Final = 32  # minimum number of spans; encoding fewer spans in another process is not worthwhile

# Encodes `packed` spans in another process, as `encode` does. Returns None if this process must encode them.
EncodeElsewhere = Callable[[bytes], Awaitable[bytes | None]]
Spans = Sequence[tuple[Inference, float]]

_SIZE: Final = 8
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[bool, list[tuple[Inference, float]]])
_spans = SpanEncoder()


class Encoded(NamedTuple):
    """The body of a request, and its size before compression."""

    body: bytes
    size: int
    is_compressed: bool
    items: int | None = None  # number of spans or data points in the body; None means one per record


def packed(spans: Spans, *, compresses: bool) -> bytes:
    return _encoder.encode((compresses, spans))


def encode(payload: bytes) -> Sequence[bytes]:
    """Encode a packed payload in the other process. Return the size before compression, and the body."""
    compresses, spans = _decoder.decode(payload)
    body = _spans.request(spans)
    size = len(body)
    if compresses and size >= compression.MIN_BYTES:
        body = compression.gzipped(body)
    return size.to_bytes(_SIZE, "little"), body


def unpacked(answer: bytes, *, compresses: bool) -> Encoded:
    """Unpack the result of `encode`."""
    size = int.from_bytes(answer[:_SIZE], "little")
    return Encoded(answer[_SIZE:], size, compresses and size >= compression.MIN_BYTES)
