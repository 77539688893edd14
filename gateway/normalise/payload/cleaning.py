"""
What Python senders write and JSON does not allow, cleaned: NaN, Infinity, halves of characters, bytes that
are no text.

No call into the parser of expressions passes over much of a large text, and no list is kept of its parts.
"""

from __future__ import annotations

import codecs
import re
from io import BytesIO
from typing import Final

import msgspec

from gateway.normalise.payload.json_cut import WINDOW, find

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
