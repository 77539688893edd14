"""
Readers of single report values: exact numbers, times with zones, and texts. Each raises Damaged for an
invalid value. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any

import msgspec

from spool.statements import MAX_DECIMALS, MAX_DIGITS, MAX_TEXT, normalize_amount

Row = Mapping[str, Any]  # a row of a report: a table line, or a JSON object

MAX_QUANTITY = Decimal(10**18)
_WIDE = Context(prec=MAX_DIGITS + MAX_DECIMALS, rounding=ROUND_HALF_EVEN)
_SMALLEST = Decimal(1).scaleb(-MAX_DECIMALS)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})", re.ASCII)


class Damaged(Exception):
    """
    Raised for a row that cannot be read. The message names a field, never a value, which could be a secret.
    """


def read_number_field(row: Row, name: str) -> Decimal | None:
    """
    Return the exact number in a field, rounded to 27 decimals. Return None if it is absent or empty. Raises
    Damaged.
    """
    value = row.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise Damaged(f"{name} is not a number")
    if isinstance(value, str):
        value = value.strip()
        if not _NUMBER.fullmatch(value):
            raise Damaged(f"{name} is not a number")
    try:
        parsed = Decimal(value)
        if not parsed.is_finite() or abs(parsed) >= MAX_QUANTITY:
            raise Damaged(f"{name} is too large")
        return storable_amount(parsed)
    except InvalidOperation as error:
        raise Damaged(f"{name} is not a number") from error


def storable_amount(value: Decimal) -> Decimal:
    """Return the number as it is stored: at most 27 decimals, without trailing zeros."""
    return normalize_amount(
        value if value == value.to_integral_value() else value.quantize(_SMALLEST, context=_WIDE)
    )


def read_count_field(row: Row, name: str) -> Decimal | None:
    """
    Return the whole number of at least 0 in a field, such as 10 or 10.0, or None if it is absent or empty.
    Raises Damaged.
    """
    parsed = read_number_field(row, name)
    if parsed is not None and (parsed < 0 or parsed != parsed.to_integral_value()):
        raise Damaged(f"{name} is not a whole number of at least 0")
    return parsed


def require_value(value: Decimal | None, name: str) -> Decimal:
    if value is None:
        raise Damaged(f"{name} is missing")
    return value


def read_text_field(row: Row, name: str) -> str | None:
    """Return a field's text, cut to the storable length, or None if it is absent or empty."""
    return (read_whole_text_field(row, name) or "")[:MAX_TEXT] or None


def read_whole_text_field(row: Row, name: str) -> str | None:
    """Return the whole text of a field, or None if it is absent or empty."""
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Damaged(f"{name} is not text")
    return value.strip() or None


def read_boolean_field(row: Row, name: str) -> bool | None:
    """
    Return the boolean in a field, or None if it is absent or empty. The texts TRUE and FALSE are accepted.
    """
    value = row.get(name)
    if isinstance(value, str):
        value = {"true": True, "false": False, "": None}.get(value.strip().lower(), value)
    if value is not None and not isinstance(value, bool):
        raise Damaged(f"{name} is neither true nor false")
    return value


def epoch_seconds(row: Row, name: str) -> int:
    """
    Return the time in a field as epoch seconds. Numbers, RFC 3339 times, days and month/day/year are
    accepted. The default zone is UTC. Raises Damaged.
    """
    value = row.get(name)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = read_number_field(row, name)
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        if not 946684800 <= value < 32503680000:
            raise Damaged(f"{name} is not between the years 2000 and 3000")
        return int(value)
    if not isinstance(value, str) or not value.strip():
        raise Damaged(f"{name} is missing")
    return _parse_epoch_seconds(value.strip(), name)


def _parse_epoch_seconds(written: str, name: str) -> int:
    slashed = _SLASHED.match(written)
    if slashed is not None:
        month, day, year = slashed.groups()
        written = f"{year}-{month:0>2}-{day:0>2}"
    try:
        parsed_time = datetime.fromisoformat(written.removesuffix(" UTC").removesuffix("Z"))
        seconds = (parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise Damaged(f"{name} is not a time") from error
    if not 946684800 <= seconds < 32503680000:
        raise Damaged(f"{name} is not between the years 2000 and 3000")
    return int(seconds)


def object_list(value: Any, name: str) -> Sequence[Row]:
    """Return a value that is a list of JSON objects, or an empty list if it is absent. Raises Damaged."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Damaged(f"{name} is not a list of objects")
    return value


def first_number(row: Row, *names: str) -> Decimal | None:
    return next((parsed for name in names if (parsed := read_number_field(row, name)) is not None), None)


def parse_object_text(row: Row, name: str) -> Row:
    """Return the JSON object that a cell holds as text; empty if it is absent."""
    written = read_whole_text_field(row, name)
    try:
        decoded = msgspec.json.decode(written) if written else {}
    except msgspec.DecodeError as error:
        raise Damaged(f"{name} is not an object") from error
    return nested_object({name: decoded}, name)


def nested_object(row: Row, name: str) -> Row:
    """Return the JSON object in a field; empty if it is absent."""
    value = row.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Damaged(f"{name} is not an object")
    return value
