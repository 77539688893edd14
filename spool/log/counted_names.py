"""
Names that senders choose, of which a bounded number is kept: attribute names that no dialect took, and types
of usage events.

Half of them are those that were seen most often, the others those that were seen last. A new name always has a
place, and made-up ones push out made-up ones, not what is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from spool.record import Record, UsageEvent


def often(most: int) -> int:
    """Return how many of the places go to the most frequent names."""
    return most // 2


# -- attribute names of items that look like AI and that no dialect took -------------------------------------


MAX_SHAPES = 1000  # enough to name every product in use
MAX_LENGTH = 4096  # characters of one shape
SEPARATOR = "\n"


def shape_of(names: Iterable[str]) -> str:
    """The key of a shape: its names sorted, each once."""
    return SEPARATOR.join(sorted(set(names)))[:MAX_LENGTH]


def shape_row(shape: str, count: int, last_seen: float) -> dict[str, Any]:
    """Make one shape_row of the answer of `Log.unrecognised`."""
    return {"names": shape.split(SEPARATOR), "count": count, "last_seen": last_seen}


# -- types of the usage events that are kept -----------------------------------------------------------------


MAX_TYPES = 1000
_EXACT = Context(prec=300)  # sums of amounts from 1e-115 to 1e100, however many

AmountOf = Callable[[UsageEvent], Decimal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSum:
    """How many events, and what those of them that have an amount add up to; None if none has one."""

    count: int = 0
    amount: Decimal | None = None

    def plus(self, other: EventSum) -> EventSum:
        return EventSum(count=self.count + other.count, amount=added(self.amount, other.amount))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """What was new here of a type, and when the newest of it came."""

    type: str
    count: int
    amount: Decimal | None = None
    last_seen: float


def added(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    """The exact sum of the amounts that are there."""
    return one if other is None else other if one is None else _EXACT.add(one, other)


def types_of(records: Iterable[Record], amount_of: AmountOf | None) -> Mapping[str, EventSum]:
    """The sums of some records by type. `amount_of` says what an event adds; a shadow adds nothing."""
    found: dict[str, EventSum] = {}
    for record in records:
        if isinstance(record, UsageEvent):
            amount = None if amount_of is None or record.shadow else amount_of(record)
            type = record.event_type
            found[type] = found.get(type, EventSum()).plus(EventSum(count=1, amount=amount))
    return found
