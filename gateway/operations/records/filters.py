"""The fields, dates and amounts by which lists of records are filtered and sorted."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache

from spool.errors import Invalid
from spool.ledger.sums import start_hour_or_arrival_hour
from spool.ledger.work import UNITS
from spool.record import NS, Inference, Record

_BOUND = re.compile(r"(>=?|<=?)(\d{1,15}(?:\.\d{1,18})?)", re.ASCII)
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def dollars_counted_in_totals(record: Record) -> float | None:
    """
    Return the dollars that totals count for a call. None if the cost is unknown, for duplicates kept for
    reference, for answers from a gateway's cache, and for records that are not calls.
    """
    if not isinstance(record, Inference) or record.shadow or record.status == "cached":
        return None
    text = record.cost if record.cost_source == "reported" else record.estimated_cost
    return None if text is None or record.cost_source == "none" else float(Decimal(text))


def total_tokens(record: Record) -> int | None:
    """Return the input and output tokens of a call together, or None if it reports neither."""
    if not isinstance(record, Inference) or record.input_tokens is record.output_tokens is None:
        return None
    return (record.input_tokens or 0) + (record.output_tokens or 0)


def call_seconds(record: Record) -> float | None:
    """
    Return the seconds that a call took. None if its start or end is unknown, or if it ends before it starts.
    """
    if not isinstance(record, Inference) or record.start_time is None or record.end_time is None:
        return None
    took = record.end_time - record.start_time
    return took / NS if took >= 0 else None


AMOUNTS: Mapping[str, Callable[[Record], float | None]] = {
    "cost": dollars_counted_in_totals,
    "tokens": total_tokens,
    "duration": call_seconds,
}


@lru_cache(100)
def parse_bound(name: str, text: str) -> Callable[[float], bool]:
    """Return a test of amounts for a bound such as ">0.5". Raises Invalid for any other text."""
    match = _BOUND.fullmatch(text)
    if match is None:
        raise Invalid(f"{name} must be >, >=, < or <= and a number, such as {name}=>0.5")
    compare = _COMPARE[match[1]]
    number = float(match[2])
    return lambda amount: compare(amount, number)


DATE, TOPIC, STATE, VIEW = "date", "topic", "state", "view"
FIELDS = (
    "model",
    "request_model",
    "provider",
    "team",
    "user",
    "device",
    "source",
    "api_key",
    "status",
    "session",
    "kind",
    "cost_source",
    "region",
    "sender",
)
OPEN_SETS = ("user", "device", "session")
FILTERS = tuple(dict.fromkeys(("id", *FIELDS, *UNITS, TOPIC, STATE, DATE, *AMOUNTS, VIEW)))
MAX_LIMIT = 200  # maximum records per page, so that a page stays small
_FORM = re.compile(r"\d{4}-\d{2}(?:-\d{2})?", re.ASCII)


def day_and_month(start_time: int | None, committed_at: float) -> tuple[str, str]:
    """
    Return the day and month in which totals count a record: those of its start, or of its arrival if it
    has no start.
    """
    day = datetime.fromtimestamp(start_hour_or_arrival_hour(start_time, committed_at), UTC).strftime(
        "%Y-%m-%d"
    )
    return day, day[:7]


def period_start(date: str) -> float:
    """Return the start of a day or a month in epoch seconds. Raises Invalid for any other text."""
    wrong = Invalid(f"{DATE} must be a UTC day such as 2026-11-20, or a month such as 2026-11")
    if not _FORM.fullmatch(date):
        raise wrong
    try:
        return datetime.fromisoformat(f"{date}-01"[:10]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise wrong from None
