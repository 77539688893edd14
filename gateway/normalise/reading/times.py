"""
Times as exact nanoseconds since the epoch.

A time that cannot be read is None. The call is still recorded, and sorted by the time of its receipt.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from gateway.normalise.reading.values import BadValue, parse_number
from spool.record import NS

MAX_NS: Final = 2**63 - 1
MS: Final = 1_000_000

# Upper limits of numbers in seconds, milliseconds and microseconds. With them, each unit covers the years
# 1973 to 5138.
_BANDS = ((10**11, NS), (10**14, MS), (10**17, 1_000))
_TEXT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{1,12}))?)?"
    r"\s*(?:(Z|z|UTC|GMT)|([+-])(\d\d):?(\d\d)?)?"
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h)")
_LONGEST_MS: Final = 10**10  # maximum duration in milliseconds, about four months
# maximum characters of a duration, because the search for units takes quadratic time
_MAX_DURATION: Final = 64
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": MS, "s": NS, "m": 60 * NS, "h": 3600 * NS}


def parse_instant(value: Any) -> int | None:
    """
    Parse a time into nanoseconds. A time without an offset is UTC. Return None if it is absent, 0 or
    malformed.
    """
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip())
        if match:
            return _instant_of_match(match)
    try:
        number = parse_number(value, "")
    except BadValue:
        return None
    if number is None or not 0 < number <= MAX_NS:
        return None
    whole = int(number)  # compare integers, which takes a tenth of the time
    for below, unit in _BANDS:
        if whole < below:
            return _none_if_impossible(int(number * unit))
    return _none_if_impossible(whole)


def end_after_milliseconds(start: int | None, milliseconds: Any) -> int | None:
    took = milliseconds_to_ns(milliseconds)
    return None if start is None or took is None else _none_if_impossible(start + took)


def milliseconds_to_ns(milliseconds: Any) -> int | None:
    """Convert a duration. Return None if it is impossible for a call."""
    try:
        number = parse_number(milliseconds, "")
    except BadValue:
        return None
    return int(number * MS) if number is not None and 0 <= number <= _LONGEST_MS else None


def parse_duration_ns(written: Any) -> int | None:
    """
    Parse `804ms`, `1.5s`, `350us` or `1m2s` into nanoseconds. A number without a unit is in milliseconds.
    """
    if not isinstance(written, str) or len(written) > _MAX_DURATION:
        return milliseconds_to_ns(written)
    parts = _DURATION.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written.strip():
        return milliseconds_to_ns(written)
    total = sum(int(Decimal(number) * _UNITS[unit]) for number, unit in parts)
    return total if total <= _LONGEST_MS * MS else None


def start_before_end(end: int | None, took: int | None) -> int | None:
    return None if end is None or took is None else _none_if_impossible(end - took)


def _instant_of_match(match: re.Match[str]) -> int | None:
    day, minute, second, fraction, _utc, sign, hours, minutes = match.groups()
    start = _minute_to_epoch(day, minute)
    if start is None or int(second or 0) > 60:
        return None
    offset = (int(hours) * 60 + int(minutes or 0)) * 60 if sign else 0
    seconds = start + int(second or 0) - (-offset if sign == "-" else offset)
    return _none_if_impossible(seconds * NS + int((fraction or "0").ljust(9, "0")[:9]))


@lru_cache(maxsize=256)  # cached, because the times of a batch are within a few minutes
def _minute_to_epoch(day: str, minute: str) -> int | None:
    try:
        return int(datetime.fromisoformat(f"{day}T{minute}").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def _none_if_impossible(time_ns: int) -> int | None:
    return time_ns if 0 < time_ns <= MAX_NS else None
