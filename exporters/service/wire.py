"""
Protobuf's wire format for attributes, by hand.

Filling generated message classes costs some 25 µs for a span of twenty attributes. All that surrounds a short value is
known once its length is known, so an attribute here is a look-up and a concatenation; tests parse it with the official
classes.
"""

from __future__ import annotations

_ONE_BYTE = 0x80  # varints below it are one byte
_TWO_BYTES = 0x4000
_KEPT_LENGTHS = 512  # heads of longer values are built anew, so that nothing grows with what senders send


def varint(value: int) -> bytes:
    """A number of at least 0, seven bits a byte, lowest first."""
    out = bytearray()
    while value >= _ONE_BYTE:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_VARINTS = [varint(value) for value in range(_TWO_BYTES)]


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field: text, bytes or a message."""
    return b"".join((varint(number << 3 | 2), varint(len(payload)), payload))


class Text:
    """A KeyValue with a string value, as the repeated field `number` of the message around it."""

    __slots__ = ("_heads", "_key", "_number")

    def __init__(self, key: str, *, number: int) -> None:
        self._key = field(1, key.encode())
        self._number = number
        self._heads: dict[int, bytes] = {}

    def __call__(self, value: str) -> bytes:
        raw = value.encode()
        head = self._heads.get(len(raw))
        return (self._head(len(raw)) if head is None else head) + raw

    def raw(self, value: bytes) -> bytes:
        """The same for text that is encoded already."""
        head = self._heads.get(len(value))
        return (self._head(len(value)) if head is None else head) + value

    def _head(self, length: int) -> bytes:
        string = b"\x0a" + varint(length)
        any_value = b"\x12" + varint(len(string) + length) + string
        inner = len(self._key) + len(any_value) + length
        head = varint(self._number << 3 | 2) + varint(inner) + self._key + any_value
        if length < _KEPT_LENGTHS:
            self._heads[length] = head
        return head


class Number:
    """A KeyValue with an integer value of at least 0, as the repeated field `number` of the message around it."""

    __slots__ = ("_heads",)

    def __init__(self, key: str, *, number: int) -> None:
        name = field(1, key.encode())
        self._heads = [b""]
        for length in range(1, 11):
            inner = len(name) + 2 + 1 + length
            self._heads.append(
                b"".join((varint(number << 3 | 2), varint(inner), name, b"\x12", varint(1 + length), b"\x18"))
            )

    def __call__(self, value: int) -> bytes:
        if value < _ONE_BYTE:
            return self._heads[1] + _VARINTS[value]
        if value < _TWO_BYTES:
            return self._heads[2] + _VARINTS[value]
        packed = varint(value)
        return self._heads[len(packed)] + packed
