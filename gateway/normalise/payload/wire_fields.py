"""Fields of an encoded protobuf message, by number and length only, without message types."""

from __future__ import annotations

from gateway.core.errors import BadPayload

LENGTH_DELIMITED = 2  # protobuf wire type of texts, bytes and messages
_FIXED = {1: 8, 5: 4}
_LARGEST_NUMBER = (1 << 29) - 1  # largest field number that protobuf allows


def field_tag_start_and_end(message: memoryview, begin: int) -> tuple[int, int, int]:
    """Return tag, start of the payload, and end. Raises BadPayload if there is no field."""
    size = len(message)
    tag, start = _read_varint(message, begin)
    kind = tag & 7
    if kind == LENGTH_DELIMITED:
        length, start = _read_varint(message, start)
        end = start + length
    elif kind == 0:
        _, end = _read_varint(message, start)
    else:
        end = start + _FIXED.get(kind, size)
    if kind not in (0, 1, LENGTH_DELIMITED, 5) or not 0 < tag >> 3 <= _LARGEST_NUMBER:
        raise BadPayload(f"body: byte {begin} of a message of {size} bytes does not start a protobuf field")
    if end > size:
        raise overrun_error(begin, size)
    return tag, start, end


def overrun_error(begin: int, size: int) -> BadPayload:
    return BadPayload(f"body: a field at byte {begin} runs past the end of its message of {size} bytes")


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    if position < len(message) and message[position] < 0x80:
        return message[position], position + 1
    number = shift = 0
    for index in range(position, min(position + 10, len(message))):
        byte = message[index]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, index + 1
        shift += 7
    raise BadPayload(f"body: incomplete number at byte {position} of a message of {len(message)} bytes")
