"""Attributes and numbers in OTLP/JSON: 64-bit integers come as text or number, and content is dropped here."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from gateway.normalise.otlp import admission
from gateway.normalise.otlp.admission import RULES
from gateway.normalise.otlp.decoding import json_schema as schema
from gateway.normalise.otlp.decoding.pieces import Malformed
from gateway.normalise.otlp.model import Attributes

LARGE = 256 * 1024  # bytes of a value that no field can hold
_LONGEST_NAME = 64  # of an attribute in a message
_SHORT = 18  # digits that 64 bits always hold


def attributes_of(pairs: Iterable[schema.KeyValue | None] | Attributes | None) -> Attributes:
    """Key-value pairs as a dict, without content; the last of a repeated key stays. What is read already stays."""
    if isinstance(pairs, dict):
        return pairs
    attributes: Attributes = {}
    for pair in pairs or ():
        if pair is None:
            continue
        name, value = pair.key, pair.value
        if not name or value is None:
            continue
        rule = RULES[name]
        if rule is admission.SCALAR:
            text = value.stringValue
            if text is None:
                number = _number_or_bool(value, name)
                if number is not None:
                    attributes[name] = number
            elif len(text) <= admission.MAX_VALUE:
                attributes[name] = text
        elif rule is not admission.DROPPED and (decoded := _kept(value, rule, name)) is not None:
            attributes[name] = decoded
    return attributes


def outside_of(pairs: Iterable[schema.KeyValue | None] | None, attributes: Attributes) -> dict[str, object]:
    """The texts, numbers and lists of texts that are not among the attributes read."""
    outside: dict[str, object] = {}
    for pair in pairs or ():
        if pair is not None and pair.key and pair.value is not None and pair.key not in attributes:
            with suppress(Malformed):  # a value that is not read rejects nothing
                if (found := _plain(pair.value, pair.key)) is not None:
                    outside[pair.key] = found
    return outside


def _plain(value: schema.Value, name: str) -> object:
    if value.stringValue is not None:
        return value.stringValue
    number = _number_or_bool(value, name)
    return _words(value.arrayValue, name) if number is None else number


def _number_or_bool(value: schema.Value, name: str) -> int | float | bool | None:
    try:
        whole, double_value = value.intValue, value.doubleValue
        if type(whole) is str and len(whole) <= _SHORT and whole.isdecimal() and whole.isascii():
            return int(whole)  # most are: no call
        if whole is not None:
            return whole_number(whole, "intValue", -(1 << 63), 1 << 63)
        return value.boolValue if double_value is None else double(double_value, "doubleValue")
    except Malformed as error:
        raise Malformed(f".attributes.{name[:_LONGEST_NAME]}{error}") from None


def _kept(value: schema.Value, rule: str, name: str) -> Any:
    if rule is admission.REDUCED:
        return None if value.stringValue is None else admission.reduced(name, value.stringValue)
    if value.stringValue is not None:
        return value.stringValue if len(value.stringValue) <= admission.MAX_VALUE else None
    return _words(value.arrayValue, name)


def _words(encoded: Raw, name: str) -> list[str] | None:
    """The texts of an array; decoded only here, because most arrays are never read."""
    if not 0 < memoryview(encoded).nbytes <= LARGE:
        return None
    try:
        array = schema.ARRAY.decode(encoded)
    except (msgspec.DecodeError, RecursionError):
        field = f".attributes.{name[:_LONGEST_NAME]}.arrayValue"
        raise Malformed(f"{field}: not of the type that OTLP gives it") from None
    values = array.values if array is not None else None
    return [value.stringValue for value in values or () if value is not None and value.stringValue] or None


def whole_number(value: int | str | float, field: str, low: int, high: int) -> int:
    """A 64-bit integer, exactly: a float that may have been rounded on its way is refused."""
    if type(value) is str:
        digits = value.removeprefix("-")
        if len(digits) > 20 or not (digits.isdecimal() and digits.isascii()):
            raise Malformed(f".{field}: no integer")
        number = int(value)
    elif type(value) is float:
        if not value.is_integer() or abs(value) >= 1 << 53:
            raise Malformed(f".{field}: no exact integer")
        number = int(value)
    else:
        number = int(value)
    if not low <= number < high:
        raise Malformed(f".{field}: out of the range of 64 bits")
    return number


def double(value: float | str, field: str) -> float:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise Malformed(f".{field}: no number") from None
    return value
