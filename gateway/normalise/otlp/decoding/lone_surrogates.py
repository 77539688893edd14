"""
Halves of a character in JSON text: senders that cut a long text short may cut an emoji in two, and no
strict parser takes what is left.
"""

from __future__ import annotations

import re

LARGEST = 4 * 1024 * 1024  # of a body that is looked through in one turn
_ESCAPE = 6  # bytes of one

_HEX = rb"[0-9a-fA-F][0-9a-fA-F]"
# It begins with what can be searched for fast; a pair is one match, and so is either half alone.
_SURROGATE = re.compile(rb"\\u[dD](?:[89abAB]%b(?:\\u[dD][c-fC-F]%b)?|[c-fC-F]%b)" % (_HEX, _HEX, _HEX))


def replaced(body: bytes) -> bytes | None:
    """The body with U+FFFD in their place; None when it has none, or is too large to look."""
    if len(body) > LARGEST:
        return None
    parts, done = [], 0
    for found in _SURROGATE.finditer(body):
        if len(found[0]) == _ESCAPE and not _is_escaped(body, found.start()):
            parts += [body[done : found.start()], rb"\ufffd"]
            done = found.end()
    return b"".join([*parts, body[done:]]) if parts else None


def _is_escaped(body: bytes, place: int) -> bool:
    """True if the backslash there is the second of two: an odd number of them comes before it."""
    begin = place
    while begin and body[begin - 1] == 0x5C:
        begin -= 1
    return (place - begin) % 2 == 1
