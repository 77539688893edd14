"""
Billed money beside the ledger's sums: values, and how it is asked for. Pure.

It is made of statements and sums, can be thrown away, and changes no sum. A row belongs to one or several
arrangements of the same bill: each cost type is a choice of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from spool.errors import NotKept
from spool.ledger import money
from spool.ledger.queries import BILLED_DIMENSIONS, BILLED_TYPES, ORIGINS, CostQuery, Derived
from spool.ledger.sums import DAY_S, Dimensions
from spool.record import border

# Charges that a slice of the calls has: all else is of the whole bill. LAYERS are divided over calls, too,
# but by what the whole bill has of them.
SLICED_CHARGES = ("usage", "discount", "commitment")
LAYERS = ("other", "tax", "credit", "refund", "correction")

OPEN, PROVISIONAL, CLOSED, FROZEN = "open", "provisional", "closed", "invoiced"
RESTATED, DIFFERENCE, TAX, ROUNDING = "restated", "difference", "tax", "rounding"
# What stands beside the days of a bill has its own key among the providers: no name has such characters.
CORRECTS, INVOICE, CONNECTION = "\x1f", "\x1e", "\x1d"
CALLS, BILLING, CONTAINERS = ORIGINS  # where an amount comes from: `origin`
USAGE, EXACT, SHARED, UNALLOCATED = "usage", "exact", "shared", "unallocated"
COUNTED = "counted"  # the basis of what stands in place of a bill that is missing

EVERY = sum(BILLED_TYPES.values())
INVOICED = BILLED_TYPES["invoiced_amortized_cost"]  # of closed days alone
AMORTIZED = (
    BILLED_TYPES["amortized_cost"] | BILLED_TYPES["discounted_amortized_cost"] | INVOICED
)  # fees on what they cover

_COUNTED_AS = dict.fromkeys(BILLED_DIMENSIONS, "") | {"charge": USAGE, "basis": EXACT, "origin": CALLS}
_COUNTED = {
    name: Derived(name=name, label=name, sources=(), value=lambda _, each=value: each)  # type: ignore[misc]
    for name, value in _COUNTED_AS.items()
}


class BilledSum(NamedTuple):
    """An amount of one set of dimensions, in units of `spool.ledger.money`."""

    dimensions: Dimensions
    charge: str
    basis: str
    arranged: int
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledDay:
    """
    A day of one provider as it was made. `mark` tells whether another making differs; `revision` counts them. What
    corrects a day of a closed month, and what its invoice has beside its days, is kept like a day of its own.

    `reasons` are the units that no calls are known for, `accrued` what comes to them in AMORTIZED types, and
    `foreign` the number of rows in other currencies.
    """

    day: int  # epoch seconds
    provider: str
    state: str
    mark: str
    source: str
    read_at: float
    made_at: float
    revision: int = 1
    reasons: Mapping[str, int] = field(default_factory=dict)
    accrued: Mapping[str, int] = field(default_factory=dict)
    foreign: Mapping[str, int] = field(default_factory=dict)

    @property
    def corrects(self) -> str:
        """The day that this corrects, such as 2026-10-12; "" for none."""
        return self.provider.partition(CORRECTS)[2]

    @property
    def is_apart(self) -> bool:
        """True if it is no day of a bill, but stands beside it."""
        return any(mark in self.provider for mark in (CORRECTS, INVOICE, CONNECTION))

    @property
    def connection(self) -> str:
        """The billing connection whose rows these are; "" for a bill."""
        return self.provider.partition(CONNECTION)[2].rpartition(":")[0]

    @property
    def seller(self) -> str:
        found = self.provider
        for mark in (CORRECTS, INVOICE, CONNECTION):
            found = found.partition(mark)[0]
        return found


def with_own_dimensions(query: CostQuery) -> CostQuery:
    """The question as the rows of counted sums understand it: all are usage, and exact unless it says otherwise."""
    named = {name: _COUNTED[name] for name in query.named if name in BILLED_DIMENSIONS}
    return replace(query, derived={**named, **query.derived})


def with_running_day(query: CostQuery, now: float) -> CostQuery:
    """
    The question with the whole of the day (UTC) that its end divides, if that is still to come: what billed money
    has of that day is all that there is.
    """
    end = query.until.timestamp()
    if end < now:
        return query
    midnight = -(-end // DAY_S) * DAY_S
    return replace(query, until=datetime.fromtimestamp(midnight, query.until.tzinfo))


def check_days(days: Iterable[int], instants: Iterable[float]) -> None:
    """NotKept if an instant (epoch seconds) lies within one of the days that have billed money."""
    known = set(days)
    for instant in instants:
        start = int(instant // DAY_S) * DAY_S
        if start != instant and start in known:
            raise NotKept(
                "billed money is kept by whole days of UTC alone: ask for periods that begin and end at midnight UTC"
                f"; this question divides one at {border(instant)}"
            )


def whole_days_of(start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the days of a period, with no rollup. What is cut has none: `check_days` has seen to that."""
    low, high = -(-start // DAY_S) * DAY_S, -(-end // DAY_S) * DAY_S
    if low < high:
        yield DAY_S, low, high, 0


def row_of(day: BilledDay) -> dict[str, object]:
    """Return what is kept of a day, by column."""
    told = {
        "reasons": _in_text(day.reasons),
        "accrued": _in_text(day.accrued),
        "foreign": dict(sorted(day.foreign.items())),
    }
    return {
        "start": day.day,
        "provider": day.provider,
        "state": day.state,
        "mark": day.mark,
        "source": day.source,
        "read_at": day.read_at,
        "made_at": day.made_at,
        "revision": day.revision,
        "told": json.dumps(told),
    }


def day_of(row: dict[str, Any]) -> BilledDay:
    """Return the day of such a row."""
    told = json.loads(row.pop("told"))
    reasons, accrued = (
        {name: money.units(text) for name, text in told.get(of, {}).items()} for of in ("reasons", "accrued")
    )
    return BilledDay(day=row.pop("start"), **row, reasons=reasons, accrued=accrued, foreign=told["foreign"])


def _in_text(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: money.text(amount) for name, amount in sorted(amounts.items())}
