"""
Single values as senders write them: placeholders, counts and money that may be text, and JSON inside text.

Numbers with a fraction arrive as `Decimal`, so that no digit is lost, or as text if they are too large for a
`Decimal`. A value that is impossible for its field raises `BadValue`, which names the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED
from gateway.normalise.payload.items import UNREADABLE, Raw, decode_or_clean
from gateway.normalise.payload.large_items import LARGE, without_large_values
from gateway.normalise.reading.tags import tag_text
from spool.record import decimal_text

MAX_TEXT: Final = 2048  # maximum characters of an id, a name or a model
# Largest plausible token count. A larger value has a wrong unit or is a timestamp.
MAX_TOKENS: Final = 10**9
MAX_COST: Final = Decimal(10**12)
# Maximum digits of a cost. Sums of doubles have fewer digits, and costs of this length are still added up
# quickly.
MAX_COST_DIGITS: Final = 100
# smallest power of ten of a cost, because smaller amounts would print as rows of zeros
SMALLEST_COST: Final = -40

# texts for a missing value: "-" from gateways, "none" from Micrometer, "None" from Python, "undefined" and
# "null" from JavaScript
ABSENT: Final = frozenset({"", "-", "none", "None", "undefined", "null"})
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)

Struct = TypeVar("Struct", bound=msgspec.Struct)

# Type of members that are read only if they are text, which may be JSON. Other types are ignored.
Other = str | int | float | bool | list[msgspec.Raw] | None


class BadValue(Exception):
    """Raised for an item with a value that cannot be counted. `message` names a field, never a value."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def decimal_or_text(written: str) -> Decimal | str:
    """Return a number with all its digits. If its exponent is too large for a Decimal, it stays a text."""
    try:
        return Decimal(written)
    except InvalidOperation:
        return written


@cache
def decimal_json_decoder(type: type[Struct]) -> msgspec.json.Decoder[Struct]:
    return msgspec.json.Decoder(type, float_hook=decimal_or_text)


def decode_object(raw: Raw, type: type[Struct]) -> Struct:
    """Decode one object of any size. Raises one of UNREADABLE."""
    result: Struct = decode_or_clean(
        raw if len(raw) < LARGE else without_large_values(raw, type), decimal_json_decoder(type)
    )
    return result


def struct_or_empty(value: Any, type: type[Struct]) -> Struct:
    """Decode JSON text into a struct. Return an empty struct for anything but an object."""
    if isinstance(value, type):
        return value
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        return struct_or_none(value, type) or type()
    return type()


def struct_or_none(text: str | Raw, type: type[Struct]) -> Struct | None:
    """
    Return a decoded object. Return None for another form, or for a truncated object, which logs of bodies
    often have.
    """
    packed = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        return decode_object(packed, type)
    except UNREADABLE:
        return None


def dict_or_empty(value: Any) -> dict[str, Any]:
    """Return a dict, decoded if it is JSON text. Return an empty dict for anything else."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str) or value.lstrip()[:1] != "{":
        return {}
    if len(value) >= LARGE:
        parsed = struct_or_none('{"map":' + value + "}", _Map)
        return parsed.map if parsed else {}
    try:
        return decode_or_clean(value.encode("utf-8", "surrogatepass"), _MAPS)
    except UNREADABLE:
        return {}


def decode_if_json_text(value: Any) -> Any:
    if type(value) is str and value[:1] in ('"', "{", "[") and len(value) < LARGE:
        try:
            return msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return value
    return value


def text_or_none(value: Any) -> str | None:
    """Return a text, or a number as text. Return None for placeholders, other values and overlong text."""
    if value is None:  # the most frequent value first
        return None
    if type(value) is not str:
        if isinstance(value, bool) or (written := tag_text(value)) is None:
            return None
        value = written
    return None if value in ABSENT or len(value) > MAX_TEXT else value


def first_text(*values: Any) -> str | None:
    for value in values:
        if (text_value := text_or_none(value)) is not None:
            return text_value
    return None


def is_true(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def is_false(value: Any) -> bool:
    """Return whether a flag is false. Some rows write flags as 0.0."""
    return value == 0 or (isinstance(value, str) and value.lower() == "false")


def parse_count(value: Any, field: str) -> int | None:
    """
    Parse a token count. Return None if it is absent. Raises BadValue for other text and for impossible
    numbers.
    """
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    if value is None:
        return None
    number = parse_number(value, field)
    if number is None:
        return None
    if number < 0:
        raise BadValue(IMPLAUSIBLE, f"{field} is negative")
    if number > MAX_TOKENS:
        raise BadValue(IMPLAUSIBLE, f"{field} is impossibly large")
    if number != int(number):
        raise BadValue(IMPLAUSIBLE, f"{field} is not a whole number")
    return int(number)


def parse_amount(value: Any, field: str) -> str | None:
    """
    Parse an amount. Return it with the source's digits and without an exponent, or None if it is absent.
    Raises BadValue.
    """
    if value is None:
        return None
    number = parse_number(value, field)
    if number is None:
        return None
    if number < 0:
        raise BadValue(IMPLAUSIBLE, f"{field} is negative")
    if not number:
        return "0"
    if number > MAX_COST or number.adjusted() < SMALLEST_COST:
        raise BadValue(IMPLAUSIBLE, f"{field} is not a plausible price")
    written = decimal_text(number)
    if len(written) > MAX_COST_DIGITS:
        raise BadValue(IMPLAUSIBLE, f"{field} is not a plausible price")
    return written


def status_code(value: Any) -> int | None:
    try:
        number = parse_number(value, "")
    except BadValue:
        return None
    return int(number) if number is not None and 0 <= number <= 999 else None


def parse_number(value: Any, field: str) -> Decimal | None:
    """Parse a number. Return None if it is absent. Raises BadValue if it is not a number."""
    kind = type(value)
    if kind is Decimal:
        number: Decimal = value
        return number
    if kind is int:
        return Decimal(value)
    # floats come from OTLP and untyped JSON; the shortest text of a float has the digits that were sent
    if kind is float:
        return _parse_number_text(repr(value), field)
    if kind is str:
        return _parse_number_text(value.strip(), field)
    if value is None:
        return None
    raise BadValue(MALFORMED, f"{field} is not a number")


def _parse_number_text(written: str, field: str) -> Decimal | None:
    if written in ABSENT:
        return None
    if len(written) > MAX_TEXT or not _NUMBER.fullmatch(written):
        raise BadValue(MALFORMED, f"{field} is not a number")
    try:
        return Decimal(written)
    except InvalidOperation as error:  # the number has an exponent of twenty digits or more
        raise BadValue(IMPLAUSIBLE, f"{field} is not a plausible number") from error


class _Map(msgspec.Struct):
    map: dict[str, Any] = {}


_MAPS = msgspec.json.Decoder(dict[str, Any], float_hook=decimal_or_text)


OTHER = "_OTHER"
# Matches names such as `com.shop.Client$Timeout` or `Shop.Client+Timeout`
_READABLE = re.compile(r"[\w.:/,$+-]{1,128}")


def first_machine_readable(types: Iterable[str | None]) -> str:
    """Return the first error type that has the form of a name or a code, otherwise `_OTHER`."""
    return next(
        (type_name for type_name in types if type_name is not None and _READABLE.fullmatch(type_name)), OTHER
    )
