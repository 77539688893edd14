"""
The expectations of a submission about the streams of its records.

On shared storage, another process may have defined a stream that this process does not know. The commit
rejects a stream that differs from the stored one, and new streams beyond the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from spool.log.partial_reports import ExpectedVersion
from spool.streams import TelemetryStream, is_same_stream

# prefix of the keys of expectations about streams; keys of partial reports begin otherwise
STREAMS = b"stream/"
AGREES = 1


def stream_expectation(stream: TelemetryStream) -> ExpectedVersion:
    facts = (stream.name, stream.type, stream.granularity, stream.keys)
    return ExpectedVersion(STREAMS + _encode(facts), AGREES)


def decode_claimed_streams(expectation_keys: Iterable[bytes]) -> Mapping[bytes, TelemetryStream]:
    return {
        key: _decode_stream(key.removeprefix(STREAMS)) for key in expectation_keys if key.startswith(STREAMS)
    }


def versions_of_accepted_claims(
    claimed_streams: Mapping[bytes, TelemetryStream],
    known_streams: Mapping[str, TelemetryStream],
    *,
    free_streams: int,
) -> dict[bytes, int]:
    """
    Return the keys in `claimed_streams` whose stream definition is equal to the known one or may be added,
    each with AGREES, the version that a submission expects. `free_streams`: the number of streams that may
    still be added.
    """
    new = sorted({stream.name for stream in claimed_streams.values()} - known_streams.keys())
    over = set(new[max(0, free_streams) :])
    return {
        key: AGREES
        for key, stream in claimed_streams.items()
        if stream.name not in over and is_same_stream(known_streams.get(stream.name), stream)
    }


def _decode_stream(facts: bytes) -> TelemetryStream:
    name, type, granularity, keys = _facts.decode(facts)
    return TelemetryStream(name=name, type=type, granularity=granularity, keys=keys)


_encode = msgspec.msgpack.Encoder().encode
_facts = msgspec.msgpack.Decoder(tuple[str, str, str | None, tuple[str, ...] | None])
