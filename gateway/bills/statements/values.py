"""Single values as reports write them: exact numbers, times with their zone, texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any

import msgspec

from spool.statements import MAX_DECIMALS, MAX_DIGITS, MAX_TEXT, plain

Row = Mapping[str, Any]  # of a report: a line of a table, or an object of a document

MAX_QUANTITY = Decimal(10**18)
_WIDE = Context(prec=MAX_DIGITS + MAX_DECIMALS, rounding=ROUND_HALF_EVEN)
_SMALLEST = Decimal(1).scaleb(-MAX_DECIMALS)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})", re.ASCII)


class Damaged(Exception):
    """A row that cannot be read. The message names a field, and no value that could be a secret."""


def number(row: Row, name: str) -> Decimal | None:
    """Every digit of a number, up to the 27th decimal; None if it is absent or empty."""
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
        found = Decimal(value)
        if not found.is_finite() or abs(found) >= MAX_QUANTITY:
            raise Damaged(f"{name} is too large")
        return kept(found)
    except InvalidOperation as error:
        raise Damaged(f"{name} is not a number") from error


def kept(value: Decimal) -> Decimal:
    """The number as it is kept: up to the 27th decimal, without zeros at its end."""
    return plain(value if value == value.to_integral_value() else value.quantize(_SMALLEST, context=_WIDE))


def count(row: Row, name: str) -> Decimal | None:
    """A whole number that is not negative, also where it is written as 10.0; None if it is absent or empty."""
    found = number(row, name)
    if found is not None and (found < 0 or found != found.to_integral_value()):
        raise Damaged(f"{name} is not a count")
    return found


def required(value: Decimal | None, name: str) -> Decimal:
    if value is None:
        raise Damaged(f"{name} is missing")
    return value


def text(row: Row, name: str) -> str | None:
    """None if it is absent or empty; cut at what is kept."""
    return (text_of(row, name) or "")[:MAX_TEXT] or None


def text_of(row: Row, name: str) -> str | None:
    """Return a text of any length; None if it is absent or empty."""
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Damaged(f"{name} is not text")
    return value.strip() or None


def flag(row: Row, name: str) -> bool | None:
    """Also as TRUE and FALSE in a cell."""
    value = row.get(name)
    if isinstance(value, str):
        value = {"true": True, "false": False, "": None}.get(value.strip().lower(), value)
    if value is not None and not isinstance(value, bool):
        raise Damaged(f"{name} is neither true nor false")
    return value


def moment(row: Row, name: str) -> int:
    """Epoch seconds of a time: a number of them, RFC 3339, a day, or month/day/year. Without a zone it is UTC."""
    value = row.get(name)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = number(row, name)
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        if not 946684800 <= value < 32503680000:
            raise Damaged(f"{name} is not of this millennium")
        return int(value)
    if not isinstance(value, str) or not value.strip():
        raise Damaged(f"{name} is missing")
    return _seconds(value.strip(), name)


def _seconds(written: str, name: str) -> int:
    slashed = _SLASHED.match(written)
    if slashed is not None:
        month, day, year = slashed.groups()
        written = f"{year}-{month:0>2}-{day:0>2}"
    try:
        found = datetime.fromisoformat(written.removesuffix(" UTC").removesuffix("Z"))
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise Damaged(f"{name} is not a time") from error
    if not 946684800 <= seconds < 32503680000:
        raise Damaged(f"{name} is not of this millennium")
    return int(seconds)


def objects(value: Any, name: str) -> Sequence[Row]:
    """A list of JSON objects; an absent one is empty."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise Damaged(f"{name} is not a list of objects")
    return value


def first_number(row: Row, *names: str) -> Decimal | None:
    """Return the first of several columns that tells a number."""
    return next((found for name in names if (found := number(row, name)) is not None), None)


def object_of(row: Row, name: str) -> Row:
    """Return a JSON object that a cell has as text; an absent one is empty."""
    written = text_of(row, name)
    try:
        found = msgspec.json.decode(written) if written else {}
    except msgspec.DecodeError as error:
        raise Damaged(f"{name} is not an object") from error
    return inner({name: found}, name)


def inner(row: Row, name: str) -> Row:
    """A JSON object within a row; an absent one is empty."""
    value = row.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Damaged(f"{name} is not an object")
    return value
