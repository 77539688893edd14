"""
Bodies into raw items, by their first bytes and never by a content type: one document, an array, or lines.

An item stays undecoded bytes, so that a bad one is rejected alone. What Python senders write and JSON does
not allow is cleaned, in one item only and with every digit kept. However large a body is, no call into a
parser takes more than a window of it: the event loop waits for its end, also where this runs on a thread.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final, TypeVar

import msgspec

from gateway.normalise.payload.body_limits import TURN, Allowance
from gateway.normalise.payload.json_cut import find
from gateway.normalise.payload.json_pieces import (
    PASSED_OVER,
    ValueEnds,
    clean,
    elements_of,
    is_document,
    members_in,
    piece,
)
from gateway.service.errors import BadPayload, Refusal

Raw = bytes | msgspec.Raw
T = TypeVar("T")

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
GZIP_MAGIC: Final = b"\x1f\x8b"

_AT_ONCE = 1024 * 1024  # what is smaller is parsed whole, which is faster and takes 72 bytes an element
_LINES_TRIED = 4096
_MOST_MEMBERS = 4096
_STEP = 1024 * 1024  # what is decoded or inflated without a pause; of base64 whole groups of four
_MEMBERS = 1024  # of gzip, however short, opened without a pause
_WINDOW = 1024  # bytes of a gzip member at first: what follows its end is copied, and members may be tiny

_BOM = b"\xef\xbb\xbf"

_array = msgspec.json.Decoder(list[msgspec.Raw])
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class TooBig(Exception):
    """What a sender packed unfolds to more than we take."""


def check_containers(body: bytes, most: int) -> None:
    """
    Refuse a body with more lists and objects than there may be, before it is decoded: each takes sixty
    bytes and more.

    Brackets in text count, too, so `most` leaves room for them. Refusal 413.
    """
    if body.count(b"[") + body.count(b"{") > most:
        raise Refusal(
            413, "too_many_items", f"The body holds more than {most} lists and objects; send smaller batches."
        )


def unmarked(body: bytes) -> bytes:
    """Remove the byte order mark that Windows puts before a text."""
    return body.removeprefix(_BOM)


def items(body: bytes) -> Iterator[Raw]:
    """
    The items of a body, lazily, and TURN now and then. BadPayload, now or on the way, if it is not JSON at all
    or breaks off.
    """
    body = unmarked(body)
    if body.startswith(GZIP_MAGIC):
        raise BadPayload("the body is gzip: say so with Content-Encoding: gzip")
    first = body.lstrip()[:1]
    if first == b"[":
        return _elements(body)
    if first == b"{":
        return _documents(body)
    if _has_object_line(body):  # LiteLLM's first line may be a null, and a log's a word of greeting
        return _lines(body)
    raise BadPayload("the body is neither a JSON object, nor an array, nor JSON lines")


def array(raw: Raw) -> Iterator[Raw]:
    """The elements of one raw JSON value: of an array each, of anything else the value itself; TURN now and then."""
    return _elements(bytes(raw)) if first_sign(raw) == b"[" else iter((raw,))


def array_in(raw: Raw, name: str) -> Iterator[Raw]:
    """The elements of the array under a name of an object; those of a large one are cut where they stand."""
    if len(raw) < _AT_ONCE:
        return array(peek(raw)[name])
    text = object_text(raw)
    *_, place = (begin for member, begin, _ in members_at(text, text.index(b"{")) if member == name)
    return elements_of(text, place)


def is_null(raw: Raw) -> bool:
    return is_exactly(raw, b"null")


def is_exactly(raw: Raw | None, text: bytes) -> bool:
    """True if the value is exactly this text; a large value is not copied to be compared."""
    return raw is not None and len(raw) == len(text) and bytes(raw) == text


def first_sign(raw: Raw) -> bytes:
    """The first byte, which tells its type; the rest is not copied."""
    return bytes(memoryview(raw)[:1])


def decode(raw: Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode one item to its type, and clean it if needed. Raises one of UNREADABLE."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decoder.decode(clean(raw))


def peek(raw: Raw) -> dict[str, msgspec.Raw]:
    """The top-level members of one item, undecoded: of a large one the first; empty when it is not an object."""
    try:
        return decode(raw, _members) if len(raw) < _AT_ONCE else dict(members_of(raw))
    except UNREADABLE:
        return {}


def members_of(raw: Raw) -> Iterator[tuple[str, msgspec.Raw]]:
    """
    The members of a large object, one after the other: all at once, millions of them take twenty times their bytes.

    None come after the first few thousand, which is more than any format has. One of UNREADABLE where
    it breaks off.
    """
    text = object_text(raw)
    return ((name, piece(text, begin, end)) for name, begin, end in members_at(text, text.index(b"{")))


def members_at(text: bytes, place: int) -> Iterator[tuple[str, int, int]]:
    """Name, begin and end of those of the object that begins there, as `members_of` counts them."""
    return islice(members_in(text, place), _MOST_MEMBERS)


def object_text(raw: Raw) -> bytes:
    """The text of a large object, cleaned if need be. ValidationError if it is none."""
    text = bytes(raw)
    if text.lstrip()[:1] != b"{":
        raise msgspec.ValidationError("Expected `object`")
    return text if is_document(text) else clean(text)


def problem(error: Exception) -> str:
    """Why an item could not be read: a field or an offset, never a value."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    return str(error)


def inflate(packed: bytes, max_bytes: int) -> Generator[bytes, None, bytes]:
    """Gzip, one member or several, TURN now and then; TooBig past `max_bytes`, ValueError when it is not gzip."""
    parts: list[bytes] = []
    left, place, members = max_bytes, 0, 0
    while place < len(packed):
        stream, window = zlib.decompressobj(wbits=31), _WINDOW
        members += 1
        if members % _MEMBERS == 0:
            yield TURN
        while not stream.eof:
            piece = stream.unconsumed_tail or packed[place : place + window]
            if not piece:
                raise ValueError("gzip that breaks off")
            try:
                parts.append(stream.decompress(piece, min(_STEP, left + 1)))
            except zlib.error as error:
                raise ValueError("not gzip") from error
            left -= len(parts[-1])
            if left < 0:
                raise TooBig
            if len(parts[-1]) == _STEP:
                yield TURN
            place += len(piece) - len(stream.unused_data) - len(stream.unconsumed_tail)
            window = min(2 * window, _STEP)
            if window == _STEP:
                yield TURN
    return b"".join(parts)


def base64(text: str) -> Generator[bytes, None, bytes]:
    """Decode, TURN now and then. ValueError when it is not base64."""
    parts: list[bytes] = []
    for start in range(0, len(text), _STEP):
        some = text[start : start + _STEP]
        try:
            parts.append(binascii.a2b_base64(some, strict_mode=True))
        except (binascii.Error, ValueError) as error:
            raise ValueError("not base64") from error
        if start + _STEP < len(text):
            if some[-1] == "=":
                raise ValueError("not base64")
            yield TURN
    return b"".join(parts)


def _elements(body: bytes) -> Iterator[Raw]:
    if len(body) <= _AT_ONCE:
        try:
            return iter(_array.decode(body))
        except UNREADABLE:
            pass
    return _lines(body) if is_document(_first_of_lines(body)) else _only_array(body)


def _only_array(body: bytes) -> Iterator[Raw]:
    behind = yield from elements_of(body, body.index(b"["))
    if behind.strip():
        raise BadPayload("there is more behind the JSON array")


def _documents(body: bytes) -> Iterator[Raw]:
    found = _clean_documents(body) or _clean_documents(clean(body))
    if found is None:
        raise BadPayload("the body is not valid JSON")
    return found


def _clean_documents(body: bytes) -> Iterator[Raw] | None:
    """None if it holds no document that is clean."""
    if is_document(body):
        return iter((body,))
    if _has_object_line(body):
        return _lines(body)
    return _run(body) if _begins_run(body) else None


def _lines(body: bytes) -> Iterator[Raw]:
    place = number = 0
    while place < len(body):
        number += 1
        if number % PASSED_OVER == 0:  # they may all be blank
            yield TURN
        end = body.find(b"\n", place)
        line = body[place:end].strip() if end >= 0 else body[place:].strip()
        place = end + 1 if end >= 0 else len(body)
        if line[:1] == b"[":
            try:
                yield from _elements(line)
            except BadPayload:  # refused where it stands, and its neighbours are kept
                yield line
        elif b"}{" in line and not is_document(line):
            yield from _run(line)
        elif line:
            yield line


def _run(text: bytes) -> Iterator[bytes]:
    """
    Objects without anything between them, as Firehose and CloudWatch write them into files. What follows
    the last of them stays one piece.
    """
    ends, place = ValueEnds(text), 0
    while (end := ends.behind(place)) is not None and text[end : end + 1] == b"{":
        yield text[place:end].strip()
        place = end
    yield text[place:].strip()


def _begins_run(text: bytes) -> bool:
    end = ValueEnds(text).behind(0)
    return end is not None and text[end : end + 1] == b"{"


def _has_object_line(body: bytes) -> bool:
    # Lines that begin with a brace: those of a document that was printed over several lines are indented.
    place = 0 if body.startswith(b"{") else find(body, b"\n{") + 1
    for _ in range(_LINES_TRIED):
        end = body.find(b"\n", place)
        if body[place : place + 1] == b"{" and is_document(body[place : len(body) if end < 0 else end]):
            return True
        place = find(body, b"\n{", end) + 1 if end >= 0 else 0
        if not place:
            return False
    return False


def _first_of_lines(body: bytes) -> bytes:
    """The first line when there are several, else nothing."""
    text = body.strip()
    return text[: max(0, text.find(b"\n"))]


MAX_PIECE: Final = 64 * 1024 * 1024  # what a body that comes as it is may hold
MAX_WHOLE: Final = 256 * 1024 * 1024  # log lines repeat themselves, and pack to a twentieth


class Unfolding:
    """One for each body."""

    def __init__(self, allowance: Allowance) -> None:
        self._hold = allowance.hold
        self._allowance = allowance.again()
        self._left = MAX_WHOLE

    def take_off(self, wrapper: Raw) -> Iterator[bytes]:
        """Count a wrapper, which is work even if nothing is in it; TURN when the event loop is due its own."""
        self._allowance.count(1, len(wrapper))
        if self._allowance.is_due(len(wrapper)):
            yield TURN

    def unfold(self, packed: str) -> Generator[bytes, None, bytes]:
        """
        Base64, of gzip or of plain bytes; TURN now and then.

        ValueError if it is neither, TooBig for a piece that can never pass, Refusal for a body
        with too many.
        """
        body = yield from base64(packed)
        if body.startswith(GZIP_MAGIC):
            body = yield from self._inflated(body)
        self._count(len(body))
        self._hold(len(body))
        return body

    def _inflated(self, packed: bytes) -> Generator[bytes, None, bytes]:
        try:
            return (yield from inflate(packed, MAX_PIECE))
        except TooBig:
            self._count(MAX_PIECE)
            raise

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            unfolded = f"What is packed in the body unfolds to more than {MAX_WHOLE} bytes"
            raise Refusal(413, "body_too_large", f"{unfolded}; send smaller batches.")
