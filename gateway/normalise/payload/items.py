"""
Splitting of bodies into raw items. The content type is never used.

An item stays undecoded, so that a bad item is rejected without affecting others. Python senders write some invalid
JSON, which is cleaned only in the affected item, and without losing a digit. No call of a parser reads more than
one window, because the event loop waits for each call, even in a thread.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final, TypeVar

import msgspec

from gateway.core.errors import BadPayload, Refusal
from gateway.normalise.payload.body_limits import TURN, BodyReadLimits
from gateway.normalise.payload.first_bytes import describe_foreign_encoding
from gateway.normalise.payload.json_cut import find_bytes_in_windows
from gateway.normalise.payload.json_pieces import (
    PASSED_OVER,
    ValueEnds,
    is_one_json_document,
    iterate_members,
    replace_undecodable_json_parts,
    split_array_elements,
    stripped_piece,
)

Raw = bytes | msgspec.Raw
T = TypeVar("T")

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
GZIP_MAGIC: Final = b"\x1f\x8b"

# Limit in bytes for a body parsed whole, which is faster but takes 72 bytes of memory per element.
_AT_ONCE = 1024 * 1024
_LINES_TRIED = 4096
_MOST_MEMBERS = 4096
# bytes decoded or inflated before the event loop gets a turn; a multiple of four, for base64
_STEP = 1024 * 1024
_MEMBERS = 1024  # gzip members opened before the event loop gets a turn, whatever their size
# Bytes of the first window of a gzip member. It is small, because a member may be tiny, and the data after it is
# copied.
_WINDOW = 1024

_BOM = b"\xef\xbb\xbf"

_array = msgspec.json.Decoder(list[msgspec.Raw])
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class TooBig(Exception):
    """Raised if packed data expand to more than the limit."""


def refuse_too_many_containers(body: bytes, max_containers: int) -> None:
    """
    Refuse a body with too many lists and objects before it is decoded, because each takes at least sixty
    bytes of memory.

    Brackets in texts count as well, so `max_containers` must leave room for them. Raises Refusal 413.
    """
    if body.count(b"[") + body.count(b"{") > max_containers:
        raise Refusal(
            413,
            "too_many_items",
            f"The body holds more than {max_containers} lists and objects; send smaller batches.",
        )


def remove_byte_order_mark(body: bytes) -> bytes:
    return body.removeprefix(_BOM)


def items_of_body(body: bytes) -> Iterator[Raw]:
    """
    Yield the items of a body: of an array, of lines, or of adjoining objects. Yields TURN (an empty item)
    when the event loop may run. Raises BadPayload, at once or while iterating, if the body is not JSON or is
    incomplete.
    """
    body = remove_byte_order_mark(body)
    first = body.lstrip()[:1]
    if first == b"[":
        return _split_elements(body)
    if first == b"{":
        return _split_documents(body)
    # the first line may be null, which LiteLLM writes, or a greeting, as in some logs
    if _has_object_line(body):
        return _split_lines(body)
    if foreign := describe_foreign_encoding(body):
        raise BadPayload(foreign)
    if not body:
        raise BadPayload("the body is empty; send a JSON object, a JSON array or JSON lines")
    raise BadPayload("the body is not a JSON object, a JSON array or JSON lines")


def array_elements(raw: Raw) -> Iterator[Raw]:
    """Yield the elements of an array, or any other value itself. Yields TURN when the event loop may run."""
    return _split_elements(bytes(raw)) if first_byte(raw) == b"[" else iter((raw,))


def array_elements_of_member(raw: Raw, name: str) -> Iterator[Raw]:
    """
    Yield the elements of the array `name` in an object. A large object is split without copying the array.
    """
    if len(raw) < _AT_ONCE:
        return array_elements(undecoded_members(raw)[name])
    text = valid_object_text(raw)
    *_, array_begin = (
        begin for member, begin, _ in member_positions(text, text.index(b"{")) if member == name
    )
    return split_array_elements(text, array_begin)


def is_null(raw: Raw) -> bool:
    return is_equal_text(raw, b"null")


def is_equal_text(raw: Raw | None, text: bytes) -> bool:
    return raw is not None and len(raw) == len(text) and bytes(raw) == text


def first_byte(raw: Raw) -> bytes:
    return bytes(memoryview(raw)[:1])


def decode_or_clean(raw: Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode one item, cleaning it if needed. Raises one of UNREADABLE."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decoder.decode(replace_undecodable_json_parts(raw))


def undecoded_members(raw: Raw) -> dict[str, msgspec.Raw]:
    """
    Return the undecoded top-level members of an object, for a large one only the first few thousand. Return
    none for another value.
    """
    try:
        return decode_or_clean(raw, _members) if len(raw) < _AT_ONCE else dict(iterate_undecoded_members(raw))
    except UNREADABLE:
        return {}


def iterate_undecoded_members(raw: Raw) -> Iterator[tuple[str, msgspec.Raw]]:
    """
    Return the members of a large object one by one, because all members at once would take twenty
    times their bytes.

    Stops after the first few thousand members, which is more than any format has. Raises one of UNREADABLE if
    the object is incomplete.
    """
    text = valid_object_text(raw)
    return (
        (name, stripped_piece(text, begin, end))
        for name, begin, end in member_positions(text, text.index(b"{"))
    )


def member_positions(text: bytes, position: int) -> Iterator[tuple[str, int, int]]:
    """
    Yield name, start and end of each member of the object at `position`, of at most a few thousand members.
    """
    return islice(iterate_members(text, position), _MOST_MEMBERS)


def valid_object_text(raw: Raw) -> bytes:
    """
    Return an object's text, cleaned if it is not valid JSON. Raises ValidationError if it is not an object.
    """
    text = bytes(raw)
    if text.lstrip()[:1] != b"{":
        raise msgspec.ValidationError("Expected `object`")
    return text if is_one_json_document(text) else replace_undecodable_json_parts(text)


def describe_decoding_error(error: Exception) -> str:
    """Describe an error by a field or an offset, never by a value."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    return str(error)


def inflate_gzip_yielding_turns(packed: bytes, max_bytes: int) -> Generator[bytes, None, bytes]:
    """
    Inflate gzip data. Yields TURN when the event loop may run. Raises TooBig above `max_bytes`, and
    ValueError if the data are not gzip.
    """
    parts: list[bytes] = []
    remaining_bytes, offset, members = max_bytes, 0, 0
    while offset < len(packed):
        stream, window = zlib.decompressobj(wbits=31), _WINDOW
        members += 1
        if members % _MEMBERS == 0:
            yield TURN
        while not stream.eof:
            piece = stream.unconsumed_tail or packed[offset : offset + window]
            if not piece:
                raise ValueError("incomplete gzip")
            try:
                parts.append(stream.decompress(piece, min(_STEP, remaining_bytes + 1)))
            except zlib.error as error:
                raise ValueError("not gzip") from error
            remaining_bytes -= len(parts[-1])
            if remaining_bytes < 0:
                raise TooBig
            if len(parts[-1]) == _STEP:
                yield TURN
            offset += len(piece) - len(stream.unused_data) - len(stream.unconsumed_tail)
            window = min(2 * window, _STEP)
            if window == _STEP:
                yield TURN
    return b"".join(parts)


def decode_base64(text: str) -> Generator[bytes, None, bytes]:
    """Decode base64. Yields TURN when the event loop may run. Raises ValueError if the text is not base64."""
    parts: list[bytes] = []
    for start in range(0, len(text), _STEP):
        chunk = text[start : start + _STEP]
        try:
            parts.append(binascii.a2b_base64(chunk, strict_mode=True))
        except (binascii.Error, ValueError) as error:
            raise ValueError("not base64") from error
        if start + _STEP < len(text):
            if chunk[-1] == "=":
                raise ValueError("not base64")
            yield TURN
    return b"".join(parts)


def _split_elements(body: bytes) -> Iterator[Raw]:
    if len(body) <= _AT_ONCE:
        try:
            return iter(_array.decode(body))
        except UNREADABLE:
            pass
    return _split_lines(body) if is_one_json_document(_first_line(body)) else _elements_of_body_array(body)


def _elements_of_body_array(body: bytes) -> Iterator[Raw]:
    behind = yield from split_array_elements(body, body.index(b"["))
    if behind.strip():
        raise BadPayload("there is data after the JSON array")


def _split_documents(body: bytes) -> Iterator[Raw]:
    documents = _split_documents_or_none(body) or _split_documents_or_none(
        replace_undecodable_json_parts(body)
    )
    if documents is None:
        raise BadPayload("the body is not valid JSON")
    return documents


def _split_documents_or_none(body: bytes) -> Iterator[Raw] | None:
    if is_one_json_document(body):
        return iter((body,))
    if _has_object_line(body):
        return _split_lines(body)
    return _split_adjoining_objects(body) if _is_start_of_adjoining_objects(body) else None


def _split_lines(body: bytes) -> Iterator[Raw]:
    offset = number = 0
    while offset < len(body):
        number += 1
        if number % PASSED_OVER == 0:  # count blank lines as well, because a body may have only blank lines
            yield TURN
        end = body.find(b"\n", offset)
        line = body[offset:end].strip() if end >= 0 else body[offset:].strip()
        offset = end + 1 if end >= 0 else len(body)
        if line[:1] == b"[":
            try:
                yield from _split_elements(line)
            except BadPayload:  # a line that is no JSON is rejected as one item
                yield line
        elif b"}{" in line and not is_one_json_document(line):
            yield from _split_adjoining_objects(line)
        elif line:
            yield line


def _split_adjoining_objects(text: bytes) -> Iterator[bytes]:
    """
    Yield objects without separators between them, as Firehose and CloudWatch write them. If one is invalid,
    the rest of the text from there is one piece.
    """
    ends, offset = ValueEnds(text), 0
    while (end := ends.next_token_place(offset)) is not None and text[end : end + 1] == b"{":
        yield text[offset:end].strip()
        offset = end
    yield text[offset:].strip()


def _is_start_of_adjoining_objects(text: bytes) -> bool:
    end = ValueEnds(text).next_token_place(0)
    return end is not None and text[end : end + 1] == b"{"


def _has_object_line(body: bytes) -> bool:
    # Only lines that start with a brace count, because a document printed over several lines
    # has indented lines.
    offset = 0 if body.startswith(b"{") else find_bytes_in_windows(body, b"\n{") + 1
    for _ in range(_LINES_TRIED):
        end = body.find(b"\n", offset)
        if body[offset : offset + 1] == b"{" and is_one_json_document(
            body[offset : len(body) if end < 0 else end]
        ):
            return True
        offset = find_bytes_in_windows(body, b"\n{", end) + 1 if end >= 0 else 0
        if not offset:
            return False
    return False


def _first_line(body: bytes) -> bytes:
    text = body.strip()
    return text[: max(0, text.find(b"\n"))]


MAX_PIECE: Final = 64 * 1024 * 1024  # maximum bytes of one unpacked piece
# Limit in bytes for all unpacked pieces of a body. Log lines repeat, so they compress to a twentieth.
MAX_WHOLE: Final = 256 * 1024 * 1024


class NestedPayloadUnpacker:
    def __init__(self, read_limits: BodyReadLimits) -> None:
        self._hold = read_limits.hold
        self._allowance = read_limits.limits_for_next_pass()
        self._left = MAX_WHOLE

    def count_wrapper_as_item(self, wrapper: Raw) -> Iterator[bytes]:
        """
        Count a wrapper as an item, even if it is empty, because opening it takes work. Yields TURN when the
        event loop may run.
        """
        self._allowance.count_items(1, len(wrapper))
        if self._allowance.count_work_and_check_turn(len(wrapper)):
            yield TURN

    def decode_and_inflate(self, packed: str) -> Generator[bytes, None, bytes]:
        """
        Decode base64, and inflate gzip inside it. Yields TURN when the event loop may run.

        Raises ValueError if the data is not base64 or not gzip, TooBig if the piece is too large, and Refusal
        if the pieces of the body together are too large.
        """
        body = yield from decode_base64(packed)
        if body.startswith(GZIP_MAGIC):
            body = yield from self._inflate_piece(body)
        self._count_unpacked_bytes(len(body))
        self._hold(len(body))
        return body

    def _inflate_piece(self, packed: bytes) -> Generator[bytes, None, bytes]:
        try:
            return (yield from inflate_gzip_yielding_turns(packed, MAX_PIECE))
        except TooBig:
            self._count_unpacked_bytes(MAX_PIECE)
            raise

    def _count_unpacked_bytes(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            unfolded = f"The packed data in the body expands to more than {MAX_WHOLE} bytes"
            raise Refusal(413, "body_too_large", f"{unfolded}; send smaller batches.")
