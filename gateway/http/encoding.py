"""
JSON in pieces: a large answer is never encoded in one call, because the event loop stands still that long.

A small value is one piece, written by orjson as a whole. Of a large one each list and each object is cut
between its members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

SLICE_BYTES = 128 * 1024  # of JSON in one call of the encoder: well under a millisecond
_PIECE_BYTES = SLICE_BYTES // 4  # from so many on a piece is not made longer
_MEMBER = 48  # the least that a member counts for: to look at one takes as long as to encode so many bytes


def json_pieces(value: object) -> Iterator[bytes]:
    """The JSON of a value as orjson writes it, in pieces of at most about SLICE_BYTES."""
    gathered = bytearray()
    for part in _parts(value):
        if gathered and len(gathered) + len(part) > _PIECE_BYTES:
            yield bytes(gathered)
            gathered.clear()
        gathered += part
    yield bytes(gathered)


def is_small(value: object) -> bool:
    """True if a value is encoded in one call."""
    return _weight(value) <= SLICE_BYTES


def _parts(value: Any) -> Iterator[bytes]:
    if not isinstance(value, (dict, list, tuple)) or is_small(value):
        yield orjson.dumps(value)
    elif isinstance(value, dict):
        before = b"{"
        for name, each in value.items():
            yield before + orjson.dumps(name) + b":"
            yield from _parts(each)
            before = b","
        yield b"}"
    else:
        before = b"["
        for run in _runs(value):
            yield before
            if len(run) == 1:
                yield from _parts(run[0])
            else:
                yield orjson.dumps(run)[1:-1]
            before = b","
        yield b"]"


def _runs(values: Iterable[Any]) -> Iterator[list[Any]]:
    """The members of a list in their order, together as long as they are small."""
    run: list[Any] = []
    total = 0
    for each in values:
        own = _weight(each) + _MEMBER
        if run and total + own > SLICE_BYTES:
            yield run
            run, total = [], 0
        run.append(each)
        total += own
    if run:
        yield run


def _weight(value: object) -> int:
    """
    About how many bytes the JSON of a value has, or more for many small members; of one that is over
    SLICE_BYTES, some number over it.
    """
    weight = 0
    waiting: list[Any] = [value]
    while waiting and weight <= SLICE_BYTES:
        each = waiting.pop()
        if isinstance(each, str):
            weight += len(each)
        elif isinstance(each, (dict, list, tuple)):
            weight += len(each) * _MEMBER
            if weight <= SLICE_BYTES:
                waiting.extend(each)
                if isinstance(each, dict):
                    waiting.extend(each.values())
    return weight
