"""
Field values that try to inject formulas into spreadsheets, and readers of CSV that end rows in different ways.
"""

from __future__ import annotations

import csv
import io
import re

from tests.hostile_names import HOSTILE_NAMES

_SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_BREAKS = ("\r", "\n", "\r\n", "\t", "\x00", "\x85", "\u2028", "\u2029")
_FORMULA = "cmd|' C calc'!A0"

# Each character that starts a formula, each of these characters after a line break, and a whole row made
# by the sender.
HOSTILE = (
    *(f"{sign}{_FORMULA}" for sign in _SIGNS),
    *(f"a{mark}={_FORMULA}" for mark in _BREAKS),
    *(f"{mark}＝{_FORMULA}" for mark in _BREAKS),
    f'a"\r={_FORMULA},1,2\r',
    f" \u200b\ufeff={_FORMULA}",
    *HOSTILE_NAMES,
)
_ROW_ENDS = tuple(map(re.compile, ("\r", "\n", "\r\n|\r|\n", "\r\n|[\r\n\x0b\x0c\x85\u2028\u2029]")))
_NUMBER = re.compile(r"[+-]?[0-9.]+")


def assert_harmless(text: str, *, rows: int) -> None:
    """
    Assert that every kind of reader finds a header and `rows` rows, and that no cell starts like a formula.
    """
    for ends in _ROW_ENDS:
        lines = [line for line in ends.split(text) if line]
        if ends.pattern != "\r":  # a program that ends rows only at CR sees one line
            assert rows + 1 == len(lines), lines
        cells = [
            cell.strip() for row in csv.reader(io.StringIO("\n".join(lines), newline="")) for cell in row
        ]
        beginnings = [*cells, *(line.lstrip('" ') for line in lines)]
        assert [] == [each for each in beginnings if each.startswith(_SIGNS) and not _NUMBER.fullmatch(each)]
    assert [] == re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", text)
