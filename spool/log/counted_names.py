"""
Bounded lists of names that senders choose: attribute names that no dialect reads, and types of usage events.

Half of a list has the most frequent names, the other half the most recent. A new name replaces a rare one, so
a sender that invents names cannot displace names in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from spool.record import Record, UsageEvent


def max_rows_of_most_frequent_names(max_rows: int) -> int:
    return max_rows // 2


# -- shapes: attribute names of items that look like AI calls and that no dialect reads ----------------------


MAX_SHAPES = 1000  # enough for every product in use
MAX_LENGTH = 4096  # maximum characters of a shape's joined names
SEPARATOR = "\n"


def unrecognised_names_key(names: Iterable[str]) -> str:
    return SEPARATOR.join(sorted(set(names)))[:MAX_LENGTH]


def unrecognised_names_json_row(joined_names: str, count: int, last_seen: float) -> dict[str, Any]:
    return {"names": joined_names.split(SEPARATOR), "count": count, "last_seen": last_seen}


# -- types of stored usage events ------------------------------------------------------------------------


MAX_TYPES = 1000
_EXACT = Context(prec=300)  # for the sum of any number of amounts between 1e-115 and 1e100

AmountOf = Callable[[UsageEvent], Decimal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSum:
    """The number of events of a type and the sum of their amounts, None if no event has an amount."""

    count: int = 0
    amount: Decimal | None = None

    def plus(self, other: EventSum) -> EventSum:
        return EventSum(count=self.count + other.count, amount=add_amounts(self.amount, other.amount))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """
    A type of usage events: the number of its events without repeats, and the arrival time of the newest.
    """

    type: str
    count: int
    amount: Decimal | None = None
    last_seen: float


def add_amounts(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return one if other is None else other if one is None else _EXACT.add(one, other)


def sum_by_type(records: Iterable[Record], amount_of: AmountOf | None) -> Mapping[str, EventSum]:
    """
    Return the sums of usage events by type. A duplicate that is stored for reference counts, but its amount
    does not.
    """
    sums_by_type: dict[str, EventSum] = {}
    for record in records:
        if isinstance(record, UsageEvent):
            amount = None if amount_of is None or record.shadow else amount_of(record)
            type = record.event_type
            sums_by_type[type] = sums_by_type.get(type, EventSum()).plus(EventSum(count=1, amount=amount))
    return sums_by_type
