"""
Bodies into raw items, by their first bytes and never by a content type: one document, an array, or lines.

An item stays undecoded bytes, so that a bad one is rejected alone. What Python senders write and JSON does
not allow (NaN, lone surrogates, bytes that are no UTF-8) is cleaned, in one item only and with every digit
kept.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final, TypeVar

import msgspec

from gateway.errors import BadPayload, Refusal
from gateway.normalise.payload.slices import TURN

Raw = bytes | msgspec.Raw
T = TypeVar("T")

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
GZIP_MAGIC: Final = b"\x1f\x8b"

_AT_ONCE = 1024 * 1024  # what is smaller is parsed whole, which is faster and takes 72 bytes an element
_MARKS = 65536  # brackets and commas that are counted without a pause
_PASSED_OVER = 4096  # blank lines, or commas with nothing between them, until the loop gets its turn
_LINES_TRIED = 4096
_MOST_MEMBERS = 4096
_STEP = 1024 * 1024  # what is decoded or inflated without a pause; of base64 whole groups of four
_MEMBERS = 1024  # of gzip, however short, opened without a pause
_WINDOW = 1024  # bytes of a gzip member at first: what follows its end is copied, and members may be tiny

_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(rb"[^\n]+")
_NEXT_LINE = re.compile(rb"\n\s*\S")
# Lines that begin with a brace: those of a document that was printed over several lines are indented.
_OBJECT_LINE = re.compile(rb"^\{[^\n]*", re.MULTILINE)
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
# A string that never ends takes the rest of the text: looked for at each of its quotes, it would be quadratic.
_OPEN_STRING = rb'"(?:[^"\\]++|\\.)*+(?:"|(\\?\Z))'
_NAME = re.compile(rb"\s*[{,]\s*(" + _STRING + rb")\s*:\s*", re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{},]")
_MARK = re.compile(_OPEN_STRING + rb"|" + _BRACKET.pattern, re.DOTALL)
_OFFSET = re.compile(r"\(byte (\d+)\)")
_UNCLEAN = re.compile(rb"Infinity|NaN|\\u[dD]")
_STRING_OR_NOT_JSON = re.compile(_OPEN_STRING + rb"|-?\bInfinity\b|\bNaN\b", re.DOTALL)
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # found much faster than each escape is looked at
_ESCAPE = re.compile(_HIGH + _LOW + rb"|(" + _HIGH + rb"|" + _LOW + rb")|\\.", re.DOTALL)

_document = msgspec.json.Decoder(msgspec.Raw)
_array = msgspec.json.Decoder(list[msgspec.Raw])
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class TooBig(Exception):
    """What a sender packed unfolds to more than we take."""


def check_containers(body: bytes, most: int) -> None:
    """
    Refuse a body with more lists and objects than there may be, before it is decoded: each takes sixty bytes and more.

    Brackets in text count, too, so `most` leaves room for them. Refusal 413.
    """
    if body.count(b"[") + body.count(b"{") > most:
        raise Refusal(
            413, "too_many_items", f"The body holds more than {most} lists and objects; send smaller batches."
        )


def unmarked(body: bytes) -> bytes:
    """Without the byte order mark that Windows puts before a text."""
    return body.removeprefix(_BOM)


def items(body: bytes) -> Iterator[Raw]:
    """
    The items of a body, lazily, and TURN now and then. BadPayload, now or on the way, if it is no JSON at all or
    breaks off.
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
    text = bytes(raw)
    return _elements(text) if text[:1] == b"[" else iter((raw,))


def clean(raw: Raw) -> bytes:
    """The same JSON, with null for NaN and Infinity, and U+FFFD for lone surrogates and invalid UTF-8."""
    text = bytes(raw).decode("utf-8", "replace").encode()
    if not _UNCLEAN.search(text):
        return text
    parts, kept = [], 0
    for found in _STRING_OR_NOT_JSON.finditer(text):  # `sub` would hold every string of the text at once
        whole = found[0]
        cleaned = _cleaned(whole)
        if cleaned != whole:
            parts += [text[kept : found.start()], cleaned]
            kept = found.end()
    return b"".join([*parts, text[kept:]])


def decode(raw: Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """One item, typed; cleaned when it needs it. Raises one of UNREADABLE."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decoder.decode(clean(raw))


def peek(raw: Raw) -> dict[str, msgspec.Raw]:
    """The top-level members of one item, undecoded: of a large one the first; empty when it is no object."""
    try:
        return decode(raw, _members) if len(raw) < _AT_ONCE else dict(islice(_members_of(raw), _MOST_MEMBERS))
    except UNREADABLE:
        return {}


def problem(error: Exception) -> str:
    """Why an item could not be read: a field or an offset, never a value."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    return str(error)


def error_offset(error: msgspec.DecodeError) -> int | None:
    """The byte at which decoding failed, counted from 1; None where the text ends too early."""
    found = _OFFSET.search(str(error))
    return None if found is None else int(found[1])


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
    return _lines(body) if _is_document(_first_of_lines(body)) else _split(body)


def _documents(body: bytes) -> Iterator[Raw]:
    if _is_document(body):
        return iter((body,))
    if _has_object_line(body):
        return _lines(body)
    if _begins_run(body):
        return _run(body)
    if _is_document(cleaned := clean(body)):
        return iter((cleaned,))
    raise BadPayload("the body is not valid JSON")


def _lines(body: bytes) -> Iterator[Raw]:
    for number, found in enumerate(_LINE.finditer(body), start=1):
        if number % _PASSED_OVER == 0:  # they may all be blank
            yield TURN
        line = found[0].strip()
        if line[:1] == b"[":
            try:
                yield from _elements(line)
            except BadPayload:  # refused where it stands, and its neighbours are kept
                yield line
        elif b"}{" in line and not _is_document(line):
            yield from _run(line)
        elif line:
            yield line


def _run(text: bytes) -> Iterator[bytes]:
    """
    Objects without anything between them, as Firehose and CloudWatch write them into files. What follows
    the last of them stays one piece.
    """
    view, place = memoryview(text), 0
    while (end := _parsed_length(view[place:])) is not None and text[place + end : place + end + 1] == b"{":
        yield text[place : place + end].strip()
        place += end
    yield text[place:].strip()


def _begins_run(text: bytes) -> bool:
    end = _parsed_length(memoryview(text))
    return end is not None and text[end : end + 1] == b"{"


def _has_object_line(body: bytes) -> bool:
    return any(_is_document(found[0]) for found in islice(_OBJECT_LINE.finditer(body), _LINES_TRIED))


def _first_of_lines(body: bytes) -> bytes:
    """The first line when there are several, else nothing."""
    start = len(body) - len(body.lstrip())
    # Checked first: the expression takes ten times as long, and quadratic time among blank lines.
    has_lines = b"\n" in body[start:].rstrip()
    found = _NEXT_LINE.search(body, start) if has_lines else None
    return body[start : found.start()] if found else b""


def _is_document(text: Raw | memoryview) -> bool:
    try:
        _document.decode(text)
    except UNREADABLE:
        return False
    return True


def _split(body: bytes) -> Iterator[bytes]:
    """
    Cut an array that is large, or that no strict parser takes as a whole, at the commas between its elements.

    BadPayload on the way if the array breaks off: the elements yielded before must not be kept.
    """
    view, marks = memoryview(body), _Marks(body)
    place, end = body.index(b"[") + 1, 0
    passed_over = 0
    while body[end : end + 1] != b"]":
        end = yield from _end_of_element(body, view, place, marks)
        if element := body[place:end].strip():
            yield element
        else:
            passed_over += 1
            if passed_over % _PASSED_OVER == 0:
                yield TURN
        place = end + 1
    if body[place:].strip():
        raise BadPayload("there is more behind the JSON array")


class _Marks:
    """Brackets and commas outside of strings. A quote that is never closed begins no string."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._expression = _MARK

    def behind(self, place: int) -> Iterator[re.Match[bytes]]:
        for mark in self._expression.finditer(self._body, place):
            if mark.lastindex is None:
                yield mark
            else:
                self._expression = _BRACKET
                yield from self._expression.finditer(self._body, mark.start())


def _end_of_element(body: bytes, view: memoryview, place: int, marks: _Marks) -> Generator[bytes, None, int]:
    """The place of the comma or bracket behind an element: by the parser, else by counting brackets."""
    length = _parsed_length(view[place:])
    if length is not None and body[place + length : place + length + 1] in (b",", b"]"):
        return place + length
    depth = 0
    for number, mark in enumerate(marks.behind(place), start=1):
        if number % _MARKS == 0:
            yield TURN
        sign = mark[0]
        if depth == 0 and sign in (b",", b"]"):
            return mark.start()
        depth += (sign in (b"{", b"[")) - (sign in (b"}", b"]"))
    raise BadPayload("the JSON array breaks off")


def _members_of(raw: Raw) -> Iterator[tuple[str, msgspec.Raw]]:
    """Each by itself: all at once, millions of them take twenty times their bytes."""
    text = bytes(raw) if _is_document(raw) else clean(raw)
    view, place = memoryview(text), 0
    while (name := _NAME.match(text, place)) is not None:
        begin = name.end()
        length = _parsed_length(view[begin:])
        if length is None:
            return
        place = begin + length
        value = view[begin : begin + len(text[begin:place].rstrip())]
        yield msgspec.json.decode(name[1], type=str), msgspec.Raw(value)


def _parsed_length(text: memoryview) -> int | None:
    """The length of the value that the text begins with, None if it is not valid or nothing follows it."""
    try:
        _document.decode(text)
    except RecursionError:
        return None
    except msgspec.DecodeError as error:
        said = str(error)
        found = _OFFSET.search(said)
        # "trailing characters" saves the second pass over a large body; under any other words the text before is tried.
        if found is not None and ("trailing" in said or _is_document(text[: int(found[1]) - 1])):
            return int(found[1]) - 1
    return None


def _cleaned(text: bytes) -> bytes:
    if text[:1] != b'"':
        return b"null"
    return _ESCAPE.sub(_paired, text) if _SURROGATE.search(text) else text


def _paired(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape[1] else escape[0]
