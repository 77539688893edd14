"""Text that others chose, for lines that people read: no mark moves a cursor, ends a line, turns or hides text."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

_IN_JSON = re.compile("[\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def printable(text: str) -> str:
    """Put a space in place of each mark that is not printable."""
    return "".join(mark if mark.isprintable() else " " for mark in text)


def json_for_people(document: Any, *, option: int = 0) -> str:
    """Encode for a terminal or a log; what is not printable is escaped. What orjson does not know is text."""
    try:
        text = orjson.dumps(document, default=str, option=option).decode()
    except TypeError:  # half a character, as in the name of a file that is no UTF-8
        return json.dumps(document, default=str, indent=2 if option & orjson.OPT_INDENT_2 else None)
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
