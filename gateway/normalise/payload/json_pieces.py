"""
Elements of an array and members of an object as pieces of the text, also where some of them are broken.

No call into a parser takes more than a window of it, and a large piece is not copied.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator, Iterator
from io import BytesIO
from typing import Final

import msgspec

from gateway.normalise.payload.body_limits import TURN, Allowance
from gateway.normalise.payload.json_cut import (
    LONGEST_NAME,
    WINDOW,
    JsonCut,
    after,
    end_of_text,
    find,
    finished,
    parses,
)
from gateway.service.errors import BadPayload

MOST_ADDED: Final = (
    1024 * 1024
)  # bytes for those that are no text: a body of nothing else would take three times its own
_SIGNS: Final = (b"NaN", b"Infinity", b"\\ud", b"\\uD")  # found much faster than the expressions
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_PAIR = _HIGH + _LOW
_GOOD = rb'[^"\\]{1,256}+|\\[^u]|\\u(?![dD][89a-fA-F])|' + _PAIR
# Repetitions are counted, and not bounded by a place: it would hide what stands behind it.
_TEXT = re.compile(rb"(?:" + _GOOD + rb"){0,1024}+", re.DOTALL)
_OUTSIDE = re.compile(
    rb'(?:[^"NI-]{1,256}+|"(?:' + _GOOD + rb'){0,16}+"|-(?!Infinity)|N(?!aN)|I(?!nfinity)){0,1024}+',
    re.DOTALL,
)
_WORD = re.compile(rb"(?<!\w)(?:-?Infinity|NaN)\b")
_WORDS = re.compile(rb"(?:" + _WORD.pattern + rb"[ \t\r\n,]{0,16}+){1,4096}+")
_HALVES = re.compile(rb"(?:" + _HIGH + rb"(?!" + _LOW + rb")|" + _LOW + rb"){1,4096}+")
_HALF_BYTES: Final = 6


def clean(raw: bytes | msgspec.Raw) -> bytes:
    """The same JSON, with null for NaN and Infinity, and U+FFFD for lone surrogates and invalid UTF-8."""
    text = _in_utf8(bytes(raw))
    if all(find(text, sign) < 0 for sign in _SIGNS):
        return text
    view, cleaned = memoryview(text), BytesIO()
    place, is_text = 0, False
    while place < len(text):
        known = (_TEXT if is_text else _OUTSIDE).match(text, place)
        assert known is not None
        begin, place = place, known.end()
        cleaned.write(view[begin:place])
        if is_text and (halves := _HALVES.match(text, place)):
            cleaned.write(b"\\ufffd" * ((halves.end() - place) // _HALF_BYTES))
            place = halves.end()
        elif not is_text and (words := _WORDS.match(text, place)):
            cleaned.write(_WORD.sub(b"null", words[0]))
            place = words.end()
        elif text[place : place + 1] == b'"' or place == begin:
            is_text ^= text[place : place + 1] == b'"'
            cleaned.write(view[place : place + 1])
            place += 1
    return cleaned.getvalue()


def _in_utf8(text: bytes) -> bytes:
    """The same with U+FFFD, of three bytes, for each byte that is not text; as it came if very many are not."""
    if text.isascii():
        return text
    decoder, view, decoded = codecs.getincrementaldecoder("utf-8")("replace"), memoryview(text), BytesIO()
    for start in range(0, len(text), WINDOW):
        decoded.write(decoder.decode(view[start : start + WINDOW]).encode())
        if decoded.tell() > start + MOST_ADDED:
            return text
    decoded.write(decoder.decode(b"", final=True).encode())
    return decoded.getvalue()


PASSED_OVER: Final = 4096  # blank lines, or commas with nothing between them, until the loop gets its turn

_MARKS = 65536  # brackets and commas that are counted without a pause
_SMALL = 1024 * 1024  # bytes of a piece that is copied without the blanks around it
_BLANK = re.compile(rb"[ \t\n\r]*+")
_NAME = re.compile(rb'\s*[{,]\s*("(?:[^"\\]++|\\.)*+")\s*:\s*', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{},]")
# A quote by itself begins a string that does not end here.
_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{},]', re.DOTALL)


def is_document(text: bytes | msgspec.Raw) -> bool:
    if len(text) > WINDOW:
        body = bytes(text)
        end = ValueEnds(body).of(len(body) - len(body.lstrip()))
        return end is not None and not body[end:].strip()
    return parses(text)


def elements_of(body: bytes, place: int) -> Generator[bytes | msgspec.Raw, None, bytes]:
    """
    Cut an array that is large, or that no strict parser takes as a whole, at the commas between its elements.

    Returns what is behind it. BadPayload on the way if the array breaks off: the elements yielded before must
    not be kept.
    """
    ends, marks, is_cleaned = ValueEnds(body), _Marks(body), False
    end, place = place, place + 1
    passed_over = 0
    while body[end : end + 1] != b"]":
        border = ends.border(place)
        if border is None and not is_cleaned:
            # what is wrong here is wrong in most elements: all that follow are cleaned together
            is_cleaned = True
            cleaned = clean(b"[" + body[place:])
            if ValueEnds(cleaned).of(0) is not None:
                body, end, place = cleaned, 0, 1
                ends, marks = ValueEnds(body), _Marks(body)
                continue
        end = (yield from _counted_end(place, marks)) if border is None else border
        if len(element := piece(body, place, end)):
            yield element
        else:
            passed_over += 1
            if passed_over % PASSED_OVER == 0:
                yield TURN
        place = end + 1
    return body[place:]


class ValueEnds:
    """Where the values of a text end."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._cut = JsonCut(text, Allowance(len(text) + 1))

    def of(self, place: int) -> int | None:
        """The end of the value that begins there; None if it is not valid."""
        try:
            return finished(self._cut.passed_over(place))
        except BadPayload:
            return None

    def behind(self, place: int) -> int | None:
        """Return the place of what follows the value at a place; None at the end of the text."""
        end = self.of(self.begin(place))
        end = None if end is None else self.begin(end)
        return None if end == len(self._text) else end

    def border(self, place: int) -> int | None:
        """The comma or bracket behind an element; None if it is not valid."""
        end = self.behind(place)
        return None if end is None or self._text[end : end + 1] not in (b",", b"]") else end

    def begin(self, place: int) -> int:
        """Skip whitespace and return the begin of the value."""
        return after(_BLANK, self._text, place)


class _Marks:
    """Brackets and commas outside of strings. A quote that is never closed begins no string."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._expression = _MARK

    def behind(self, place: int) -> Iterator[re.Match[bytes]]:
        while place < len(self._body):
            stop = place + WINDOW
            for mark in self._expression.finditer(self._body, place, stop):
                if mark[0] == b'"':
                    end = end_of_text(self._body, mark.start())
                    if end is None:
                        self._expression = _BRACKET
                    stop = end or mark.end()
                    break
                if mark[0][:1] != b'"':
                    yield mark
            place = stop


def _counted_end(place: int, marks: _Marks) -> Generator[bytes, None, int]:
    """The place of the comma or bracket behind an element, by counting brackets."""
    depth = 0
    for number, mark in enumerate(marks.behind(place), start=1):
        if number % _MARKS == 0:
            yield TURN
        sign = mark[0]
        if depth == 0 and sign in (b",", b"]"):
            return mark.start()
        depth += (sign in (b"{", b"[")) - (sign in (b"}", b"]"))
    raise BadPayload("the JSON array breaks off")


def piece(text: bytes, begin: int, end: int) -> msgspec.Raw:
    """A part of a text; a large one is not copied, and may have blanks behind it."""
    if end - begin < _SMALL:
        return msgspec.Raw(text[begin:end].strip())
    return msgspec.Raw(memoryview(text)[after(_BLANK, text, begin) : end])


def members_in(text: bytes, place: int) -> Iterator[tuple[str, int, int]]:
    """Name, begin and end of each member of the object that begins there."""
    ends = ValueEnds(text)
    while (name := _NAME.match(text, place, place + LONGEST_NAME)) is not None:
        begin = ends.begin(name.end())
        end = ends.of(begin)
        if end is None:
            raise msgspec.DecodeError(f"JSON is malformed (byte {begin})")
        yield msgspec.json.decode(name[1], type=str), begin, end
        place = end
    place = ends.begin(place + (text[place : place + 1] == b"{"))
    if text[place : place + 1] != b"}":
        raise msgspec.DecodeError(f"JSON is malformed (byte {place})")
