"""Unpacks a block of snappy, as remote write has it. Pure."""

from __future__ import annotations

from spool.errors import Invalid

_LONG = 60  # a literal of this tag or more has its length behind the tag


def unpacked(block: bytes, most: int) -> bytes:
    """Unpack a block. Invalid if it is none, or more than `most` bytes unpacked."""
    try:
        size, place = _size(block)
        if size > most:
            raise Invalid(f"the block has {size} bytes unpacked, more than {most}")
        found = bytearray()
        while place < len(block):
            place = _element(block, place, found)
            if len(found) > size:
                break
    except IndexError:
        raise Invalid("the block of snappy ends too early") from None
    if len(found) != size:
        raise Invalid("the block of snappy has another size than it says")
    return bytes(found)


def _size(block: bytes) -> tuple[int, int]:
    """Return the size of what is packed, and where it begins."""
    size = 0
    for place in range(5):
        byte = block[place]
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size, place + 1
    raise Invalid("the block of snappy has no size")


def _element(block: bytes, place: int, found: bytearray) -> int:
    """Add what one element stands for; where the next one begins."""
    tag = block[place]
    place += 1
    kind, upper = tag & 3, tag >> 2
    if kind == 0:
        return _literal(block, place, upper, found)
    if kind == 1:
        length = (upper & 7) + 4
        offset = (tag >> 5) << 8 | block[place]
        return _copy(found, offset, length, place + 1)
    width = 2 if kind == 2 else 4
    if place + width > len(block):
        raise IndexError
    offset = int.from_bytes(block[place : place + width], "little")
    return _copy(found, offset, upper + 1, place + width)


def _literal(block: bytes, place: int, upper: int, found: bytearray) -> int:
    if upper >= _LONG:
        width = upper - _LONG + 1
        upper = int.from_bytes(block[place : place + width], "little")
        place += width
    end = place + upper + 1
    if end > len(block):
        raise IndexError
    found += block[place:end]
    return end


def _copy(found: bytearray, offset: int, length: int, end: int) -> int:
    """Add what stands `offset` bytes before; a copy may be of what it adds itself."""
    begin = len(found) - offset
    if not offset or begin < 0:
        raise Invalid("a copy in the block of snappy is of nothing")
    piece = bytes(found[begin : begin + length])
    while len(piece) < length:
        piece += piece[: length - len(piece)]
    found += piece
    return end
