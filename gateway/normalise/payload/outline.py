"""The names in a large item, without its large values: enough to tell whose format it is, and no copy of it."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.normalise.payload import items as payload
from gateway.normalise.payload.json_pieces import ValueEnds
from gateway.normalise.payload.large_items import LARGE

KEPT: Final = 16 * 1024  # bytes of a value that stays as it is
DEEPEST: Final = 3  # levels below which large values are null


def outlined(raw: payload.Raw, most: int) -> payload.Raw:
    """A small item itself; of a large one what is small, with null for other values and `most` elements of a list."""
    if len(raw) < LARGE:
        return raw
    try:
        text = payload.object_text(raw)
        return _outline(text, text.index(b"{"), len(text), most, DEEPEST)
    except payload.UNREADABLE:
        return b"null"


def _outline(text: bytes, begin: int, end: int, most: int, depth: int) -> bytes:
    sign = text[begin : begin + 1]
    if end - begin <= KEPT:
        return text[begin:end]
    if depth and sign == b"{":
        members = payload.members_at(text, begin)
        return b"{%b}" % b",".join(
            b"%b:%b" % (msgspec.json.encode(name), _outline(text, at, stop, most, depth - 1))
            for name, at, stop in members
        )
    if depth and sign == b"[":
        return b"[%b]" % b",".join(_elements(text, begin, most, depth - 1))
    return b"null"


def _elements(text: bytes, begin: int, most: int, depth: int) -> list[bytes]:
    ends, found, place = ValueEnds(text), list[bytes](), begin + 1
    while len(found) < most:
        place = ends.begin(place)
        end = ends.of(place)
        if end is None:
            break
        found.append(_outline(text, place, end, most, depth))
        place = ends.begin(end) + 1
        if text[place - 1 : place] != b",":
            break
    return found
