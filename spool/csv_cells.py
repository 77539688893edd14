"""
All CSV that Tollhouse writes, for spreadsheets and for programs.

Names in it were chosen by senders. No cell holds a line break or another control character: a row is one line
for every reader, whatever ends its lines, and whichever Python wrote it. No text begins like a formula.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice

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
