"""Cells of CSV files that spreadsheets open: no text in them is a formula."""

from __future__ import annotations

import re
from typing import TypeVar

Value = TypeVar("Value")

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def safe_cell(value: Value) -> Value | str:
    """A text that a spreadsheet would run as a formula gets a quote before it; numbers and all else stay."""
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
