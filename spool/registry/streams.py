"""
What a submission takes its streams to be, as what it is made from: nothing is kept that disagrees with
what they are.

Only where several processes share a storage can another one have defined a stream that this one does not
know. Those that are new to all of them are as many as there is room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from spool.log.partial_reports import Expectation
from spool.streams import Stream, is_same_stream

STREAMS = b"stream/"  # no report waits under keys that begin so
AGREES = 1


def agrees(stream: Stream) -> Expectation:
    """Expect that a stream does not exist yet, or has these properties."""
    facts = (stream.name, stream.type, stream.granularity, stream.keys)
    return Expectation(STREAMS + _encode(facts), AGREES)


def claims(keys: Iterable[bytes]) -> Mapping[bytes, Stream]:
    """The streams that such keys are about."""
    return {key: _stream(key.removeprefix(STREAMS)) for key in keys if key.startswith(STREAMS)}


def versions(claimed: Mapping[bytes, Stream], known: Mapping[str, Stream], *, room: int) -> dict[bytes, int]:
    """Return the expectations that hold; `known` are the existing streams, `room` is how many more there may be."""
    new = sorted({stream.name for stream in claimed.values()} - known.keys())
    over = set(new[max(0, room) :])
    return {
        key: AGREES
        for key, stream in claimed.items()
        if stream.name not in over and is_same_stream(known.get(stream.name), stream)
    }


def _stream(facts: bytes) -> Stream:
    name, type, granularity, keys = _facts.decode(facts)
    return Stream(name=name, type=type, granularity=granularity, keys=keys)


_encode = msgspec.msgpack.Encoder().encode
_facts = msgspec.msgpack.Decoder(tuple[str, str, str | None, tuple[str, ...] | None])
