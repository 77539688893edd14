"""
Safe output of untrusted text.

In lines for people, no text can move the cursor, end a line, or hide or reverse text. In CSV, each row is one
line for every program, and no cell begins like a formula.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson

# certainty of a recommendation or of a cause, as people read it
CONFIDENCE_WORDS = {"exact": "certain", "strong": "very likely", "weak": "likely"}
_IN_JSON = re.compile("[\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def replace_unprintable(text: str) -> str:
    return "".join(mark if mark.isprintable() else " " for mark in text)


def printable_json(document: Any, *, option: int = 0) -> str:
    """Encode a document as JSON for a terminal or a log. Values of unknown types become text."""
    try:
        text = orjson.dumps(document, default=str, option=option).decode()
    except TypeError:  # the text has a lone surrogate, for example from a file name that is not UTF-8
        return json.dumps(document, default=str, indent=2 if option & orjson.OPT_INDENT_2 else None)
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


# -- cells of CSV --------------------------------------------------------------------------------------------


# control characters, with line and paragraph separators
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Spreadsheets ignore leading blanks and zero-width characters, and some read full-width and small signs.
_FORMULA = re.compile("[\\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]*[=+\\-@＝＋－＠﹦﹢﹣﹫−]")
ROWS_OF_A_PIECE = 200
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Encode rows, with their header, as CSV. None becomes an empty cell, and a list or an object JSON."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([_escape_cell(value) for value in row] for row in rows)
    return text.getvalue()


def csv_pieces(rows: Iterable[Iterable[object]]) -> Iterator[bytes]:
    remaining_rows = iter(rows)
    while piece := list(islice(remaining_rows, ROWS_OF_A_PIECE)):
        yield csv_lines(piece).encode()


def _escape_cell(value: object) -> object:
    if isinstance(value, (bool, list, dict)):
        value = printable_json(value)
    if not isinstance(value, str):
        return value
    text = _CONTROL.sub(" ", value)
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text
