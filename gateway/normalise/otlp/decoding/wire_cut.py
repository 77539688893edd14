"""
Cuts an encoded protobuf request into smaller requests of the same type.

A message cut between two of its fields is two messages: so a large request is cut at its items, and what
stands beside them (resource, scope) goes along with every piece. Knows field numbers and lengths, and no
message type.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator

from gateway.errors import BadPayload
from gateway.normalise.otlp.decoding.slices import MAX_SLICE

_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}
_TURN = 10_000  # fields to walk over without a pause


def pieces(body: bytes, path: tuple[int, ...], limit: int = MAX_SLICE) -> Iterator[bytes]:
    """
    Requests of at most `limit` bytes where the items allow it, which together hold what `body` holds.

    `path` names the repeated fields to descend through; the last one holds the items, which are never cut.
    An empty piece now and then holds nothing: it is the caller's turn to do something else.
    """
    if len(body) <= limit:
        yield body
    else:
        yield from _pieces(memoryview(body), path, limit)


def _pieces(message: memoryview, path: tuple[int, ...], limit: int) -> Iterator[bytes]:
    if len(message) <= limit or not path:
        yield bytes(message)
        return
    number, *deeper = path
    beside, parts = yield from _split(message, number)
    if len(beside) > limit // 4:  # too much to repeat with every piece
        yield bytes(message)
        return
    tag = _varint(number << 3 | _LENGTH_DELIMITED)
    group, size = [beside], len(beside)
    for start, end in zip(parts[::2], parts[1::2], strict=True):
        for piece in _pieces(message[start:end], tuple(deeper), limit - len(beside) - 16):
            if size + len(piece) > limit and len(group) > 1:
                yield b"".join(group)
                group, size = [beside], len(beside)
            if piece or start == end:
                group += (tag, _varint(len(piece)), piece)
                size += len(piece) + len(tag) + 5
            else:
                yield piece
    yield b"".join(group)


def _split(message: memoryview, number: int) -> Generator[bytes, None, tuple[bytes, array[int]]]:
    """The fields beside `number`, and start and end of each payload of `number`."""
    beside: list[memoryview] = []
    parts = array("Q")  # hundreds of thousands of places, held for as long as the body is worked through
    size = len(message)
    wanted = number << 3 | _LENGTH_DELIMITED
    at = 0
    while at < size:
        begin = at
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, start = _read_varint(message, at)
            at = start + length
        elif kind == 0:
            _, at = _read_varint(message, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise BadPayload(f"body: no protobuf field at byte {begin} of a message of {size} bytes")
        if at > size:
            where = f"at byte {begin} runs past the end of its message of {size} bytes"
            raise BadPayload(f"body: a field {where}")
        if tag == wanted:
            parts.append(start)
            parts.append(at)
            if len(parts) % (2 * _TURN) == 0:
                yield b""
        else:
            beside.append(message[begin:at])
    return b"".join(beside), parts


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    for place in range(at, min(at + 10, len(message))):
        byte = message[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place + 1
        shift += 7
    raise BadPayload(f"body: a number at byte {at} of a message of {len(message)} bytes has no end")


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
