"""
Splitting and cleaning of JSON text that may be large or invalid. No call of a parser reads more than one
window, and large pieces are not copied.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator, Iterator
from io import BytesIO
from typing import Final

import msgspec

from gateway.core.errors import BadPayload
from gateway.normalise.payload.body_limits import TURN, BodyReadLimits
from gateway.normalise.payload.json_cut import (
    LONGEST_NAME,
    WINDOW,
    JsonScanner,
    end_of_json_text,
    find_bytes_in_windows,
    is_valid_json,
    run_generator_to_end,
    skip_matching,
)

# Limit of bytes added when invalid UTF-8 is replaced. Without this limit, a body could triple its size.
MOST_ADDED: Final = 1024 * 1024
# texts that the regular expressions replace; searching for them first is much faster
_SIGNS: Final = (b"NaN", b"Infinity", b"\\ud", b"\\uD")
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_PAIR = _HIGH + _LOW
_GOOD = rb'[^"\\]{1,256}+|\\[^u]|\\u(?![dD][89a-fA-F])|' + _PAIR
# The number of repetitions is limited, because a limit by end position would hide the text after it from the
# lookaheads.
_TEXT = re.compile(rb"(?:" + _GOOD + rb"){0,1024}+", re.DOTALL)
_OUTSIDE = re.compile(
    rb'(?:[^"NI-]{1,256}+|"(?:' + _GOOD + rb'){0,16}+"|-(?!Infinity)|N(?!aN)|I(?!nfinity)){0,1024}+',
    re.DOTALL,
)
_WORD = re.compile(rb"(?<!\w)(?:-?Infinity|NaN)\b")
_WORDS = re.compile(rb"(?:" + _WORD.pattern + rb"[ \t\r\n,]{0,16}+){1,4096}+")
_HALVES = re.compile(rb"(?:" + _HIGH + rb"(?!" + _LOW + rb")|" + _LOW + rb"){1,4096}+")
_HALF_BYTES: Final = 6


def replace_undecodable_json_parts(raw: bytes | msgspec.Raw) -> bytes:
    """Replace NaN and Infinity by null, and lone surrogates and invalid UTF-8 by U+FFFD."""
    text = _replace_invalid_utf8(bytes(raw))
    if all(find_bytes_in_windows(text, sign) < 0 for sign in _SIGNS):
        return text
    view, cleaned = memoryview(text), BytesIO()
    offset, is_text = 0, False
    while offset < len(text):
        known = (_TEXT if is_text else _OUTSIDE).match(text, offset)
        assert known is not None
        begin, offset = offset, known.end()
        cleaned.write(view[begin:offset])
        if is_text and (halves := _HALVES.match(text, offset)):
            cleaned.write(b"\\ufffd" * ((halves.end() - offset) // _HALF_BYTES))
            offset = halves.end()
        elif not is_text and (match := _WORDS.match(text, offset)):
            cleaned.write(_WORD.sub(b"null", match[0]))
            offset = match.end()
        elif text[offset : offset + 1] == b'"' or offset == begin:
            is_text ^= text[offset : offset + 1] == b'"'
            cleaned.write(view[offset : offset + 1])
            offset += 1
    return cleaned.getvalue()


def _replace_invalid_utf8(text: bytes) -> bytes:
    """Replace each byte that is not UTF-8 by U+FFFD. If the text would grow too much, return it unchanged."""
    if text.isascii():
        return text
    decoder, view, decoded = codecs.getincrementaldecoder("utf-8")("replace"), memoryview(text), BytesIO()
    for start in range(0, len(text), WINDOW):
        decoded.write(decoder.decode(view[start : start + WINDOW]).encode())
        if decoded.tell() > start + MOST_ADDED:
            return text
    decoded.write(decoder.decode(b"", final=True).encode())
    return decoded.getvalue()


PASSED_OVER: Final = 4096  # blank lines or empty elements between two turns of the event loop

_MARKS = 65536  # brackets and commas counted before the event loop gets a turn
_SMALL = 1024 * 1024  # maximum bytes of a piece that is copied to remove the whitespace around it
_BLANK = re.compile(rb"[ \t\n\r]*+")
_NAME = re.compile(rb'\s*[{,]\s*("(?:[^"\\]++|\\.)*+")\s*:\s*', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{},]")
# If the pattern matches only a quote mark, its string does not end within the window.
_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{},]', re.DOTALL)


def is_one_json_document(text: bytes | msgspec.Raw) -> bool:
    if len(text) > WINDOW:
        body = bytes(text)
        end = ValueEnds(body).end_of_value(len(body) - len(body.lstrip()))
        return end is not None and not body[end:].strip()
    return is_valid_json(text)


def split_array_elements(body: bytes, position: int) -> Generator[bytes | msgspec.Raw, None, bytes]:
    """
    Yield the elements of the array at `position`, even of a large array or one that a strict parser rejects.

    Return the text after the array. Raises BadPayload if the array is incomplete; elements already yielded
    must then not be stored.
    """
    ends, marks, is_cleaned = ValueEnds(body), _BracketsAndCommas(body), False
    end, position = position, position + 1
    passed_over = 0
    while body[end : end + 1] != b"]":
        border = ends.end_of_element(position)
        if border is None and not is_cleaned:
            # clean all remaining elements together, because an error usually repeats in most elements
            is_cleaned = True
            cleaned = replace_undecodable_json_parts(b"[" + body[position:])
            if ValueEnds(cleaned).end_of_value(0) is not None:
                body, end, position = cleaned, 0, 1
                ends, marks = ValueEnds(body), _BracketsAndCommas(body)
                continue
        end = (yield from _end_by_counting_brackets(position, marks)) if border is None else border
        if len(element := stripped_piece(body, position, end)):
            yield element
        else:
            passed_over += 1
            if passed_over % PASSED_OVER == 0:
                yield TURN
        position = end + 1
    return body[position:]


class ValueEnds:
    def __init__(self, text: bytes) -> None:
        self._text = text
        self._cut = JsonScanner(text, BodyReadLimits(len(text) + 1))

    def end_of_value(self, position: int) -> int | None:
        try:
            return run_generator_to_end(self._cut.end_of_skipped_value(position))
        except BadPayload:
            return None

    def next_token_place(self, position: int) -> int | None:
        """
        Return the start of the token after a value. Return None at the end of the text, or if the value is
        invalid.
        """
        end = self.end_of_value(self.start_of_value(position))
        end = None if end is None else self.start_of_value(end)
        return None if end == len(self._text) else end

    def end_of_element(self, position: int) -> int | None:
        """Return the position of the comma or bracket after an element, or None if the element is invalid."""
        end = self.next_token_place(position)
        return None if end is None or self._text[end : end + 1] not in (b",", b"]") else end

    def start_of_value(self, position: int) -> int:
        return skip_matching(_BLANK, self._text, position)


class _BracketsAndCommas:
    """
    Finds the brackets and commas outside of strings in JSON text. A quote mark without a closing one starts
    no string.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._expression = _MARK

    def iterate_from_offset(self, offset: int) -> Iterator[re.Match[bytes]]:
        while offset < len(self._body):
            stop = offset + WINDOW
            for mark in self._expression.finditer(self._body, offset, stop):
                if mark[0] == b'"':
                    end = end_of_json_text(self._body, mark.start())
                    if end is None:
                        self._expression = _BRACKET
                    stop = end or mark.end()
                    break
                if mark[0][:1] != b'"':
                    yield mark
            offset = stop


def _end_by_counting_brackets(offset: int, marks: _BracketsAndCommas) -> Generator[bytes, None, int]:
    depth = 0
    for number, mark in enumerate(marks.iterate_from_offset(offset), start=1):
        if number % _MARKS == 0:
            yield TURN
        sign = mark[0]
        if depth == 0 and sign in (b",", b"]"):
            return mark.start()
        depth += (sign in (b"{", b"[")) - (sign in (b"}", b"]"))
    raise BadPayload("the JSON array is incomplete")


def stripped_piece(text: bytes, begin: int, end: int) -> msgspec.Raw:
    """
    Return a part of a text without the blanks around it. A large part is not copied, so it may end with
    blanks.
    """
    if end - begin < _SMALL:
        return msgspec.Raw(text[begin:end].strip())
    return msgspec.Raw(memoryview(text)[skip_matching(_BLANK, text, begin) : end])


def iterate_members(text: bytes, position: int) -> Iterator[tuple[str, int, int]]:
    """Yield name, start and end of each member. Raises DecodeError."""
    ends = ValueEnds(text)
    while (name := _NAME.match(text, position, position + LONGEST_NAME)) is not None:
        begin = ends.start_of_value(name.end())
        end = ends.end_of_value(begin)
        if end is None:
            raise msgspec.DecodeError(f"JSON is malformed (byte {begin})")
        yield msgspec.json.decode(name[1], type=str), begin, end
        position = end
    position = ends.start_of_value(position + (text[position : position + 1] == b"{"))
    if text[position : position + 1] != b"}":
        raise msgspec.DecodeError(f"JSON is malformed (byte {position})")
