"""The words of a message for people: a subject, and plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spool.printable import printable
from spool.registry.notices import REPORT, Notice

_MARKS = str.maketrans(
    {
        "@": "@\u200b",  # a name must not call people: @channel, @everyone
        "*": "\u2217",  # nor end the bold title
        "[": "(",  # nor hide an address behind other words
        "]": ")",
        "`": "\u02cb",  # nor be set as code or struck out
        "~": "\u223c",
        "<": "<\u200b",  # nor call people in a chat that is told by what we tell
        "{": "{\u200b",  # nor be filled in
    }
)
# Nor be emphasis at a word's edge, nor an address that a click opens.
_EDGES = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_ADDRESSES = re.compile(r":(?=//)|(?<=\bwww)(?=\.)", re.IGNORECASE)


def subject(notices: Sequence[Notice]) -> str:
    title = notices[0].title
    return title if len(notices) == 1 else f"{len(notices)} notices: {title} and more"


def plain(notice: Notice) -> str:
    """Without the title: the text, the fields on lines of their own, and the link."""
    named = {} if notice.kind == REPORT else notice.fields  # its text has them, in better words
    fields = "\n".join(f"{name}: {value}" for name, value in named.items())
    return "\n\n".join(part for part in (notice.text, fields, notice.link) if part)


def in_header(text: str) -> str:
    """
    A text in a header of a mail: one printable line, of which no program makes an encoded word, whose decoded line
    breaks would begin headers of their own.
    """
    return printable(text).replace("=?", "=\u200b?")


def letter_by_letter(text: str) -> str:
    """A text with names that others chose, so that chats show it as it is: no mention, markup or link."""
    text = _EDGES.sub("\u02cd", text.translate(_MARKS))
    return _ADDRESSES.sub(lambda found: f"{found[0]}\u200b", text)
