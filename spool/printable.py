"""
Text that others chose, for people and programs that read it.

In lines that people read no mark moves a cursor, ends a line, turns or hides text. In CSV no cell holds a line
break or another control character: a row is one line for every reader, whatever ends its lines, and whichever
Python wrote it. No text begins like a formula.
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


# -- cells of CSV --------------------------------------------------------------------------------------------


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # with the separators of lines and paragraphs
# Spreadsheets look past blanks and marks without a width; some read the wide and the small forms as the sign
# itself.
_FORMULA = re.compile("[\\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]*[=+\\-@＝＋－＠﹦﹢﹣﹫−]")
ROWS_OF_A_PIECE = 200
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    r"""Rows, also those of a header, as lines that end with \n. None is an empty cell."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def csv_pieces(rows: Iterable[Iterable[object]]) -> Iterator[bytes]:
    """Encode rows as `csv_lines` does, some rows at a time."""
    left = iter(rows)
    while some := list(islice(left, ROWS_OF_A_PIECE)):
        yield csv_lines(some).encode()


def _cell(value: object) -> object:
    """A space stands for each control character; a text that a spreadsheet would run gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    text = _CONTROL.sub(" ", value)
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text
