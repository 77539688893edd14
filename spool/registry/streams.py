"""
A submission's expectations about the streams that its records use.

If several processes share a storage, another process may have defined a stream that this process does not
know yet. The commit rejects a submission if its streams differ from the stored streams, or if a new stream
exceeds the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from spool.log.partial_reports import Expectation
from spool.streams import Stream, is_same_stream

# prefix of the keys of these expectations; expectations of partial reports have other prefixes
STREAMS = b"stream/"
AGREES = 1


def stream_expectation(stream: Stream) -> Expectation:
    """Expect that a stream has these properties, or does not exist yet."""
    facts = (stream.name, stream.type, stream.granularity, stream.keys)
    return Expectation(STREAMS + _encode(facts), AGREES)


def claimed_streams(keys: Iterable[bytes]) -> Mapping[bytes, Stream]:
    """Return the streams that the keys of expectations describe, by key."""
    return {key: _decode_stream(key.removeprefix(STREAMS)) for key in keys if key.startswith(STREAMS)}


def satisfied_expectations(
    claimed: Mapping[bytes, Stream], known: Mapping[str, Stream], *, room: int
) -> dict[bytes, int]:
    """
    Return the expectations that hold. `known` are the existing streams. `room` is the number of streams that
    may be added.
    """
    new = sorted({stream.name for stream in claimed.values()} - known.keys())
    over = set(new[max(0, room) :])
    return {
        key: AGREES
        for key, stream in claimed.items()
        if stream.name not in over and is_same_stream(known.get(stream.name), stream)
    }


def _decode_stream(facts: bytes) -> Stream:
    name, type, granularity, keys = _facts.decode(facts)
    return Stream(name=name, type=type, granularity=granularity, keys=keys)


_encode = msgspec.msgpack.Encoder().encode
_facts = msgspec.msgpack.Decoder(tuple[str, str, str | None, tuple[str, ...] | None])
