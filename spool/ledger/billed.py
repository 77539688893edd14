"""
Billed costs, stored next to the counted sums: their values, and rules for queries. Pure.

They are computed from bills and counted sums, and change no counted sum. A bill can be arranged in several
ways; for example, a commitment's fee is on the day of purchase or assigned to the usage that it covers.
Each billed cost type selects one arrangement; a row belongs to one or more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from spool import money
from spool.errors import NotKept
from spool.ledger.dimensions import BILLED_DIMENSIONS, BILLED_TYPES, ORIGINS, DerivedDimension
from spool.ledger.queries import CostQuery
from spool.ledger.sums import DAY_S, Dimensions
from spool.record import format_to_second

# Charges that can be assigned to a slice (what a restricted person sees). LAYERS are also spread over calls,
# but in proportion to the whole bill.
SLICED_CHARGES = ("usage", "discount", "commitment")
LAYERS = ("other", "tax", "credit", "refund", "correction")

OPEN, PROVISIONAL, CLOSED, FROZEN = "open", "provisional", "closed", "invoiced"
RESTATED, DIFFERENCE, TAX, ROUNDING = "restated", "difference", "tax", "rounding"
# In the column `provider`, each separates the name from a suffix for amounts that belong to no day of a bill.
# No provider name contains these characters.
CORRECTS, INVOICE, CONNECTION = "\x1f", "\x1e", "\x1d"
CALLS, BILLING, CONTAINERS = ORIGINS
USAGE, EXACT, SHARED, UNALLOCATED = "usage", "exact", "shared", "unallocated"
COUNTED = "counted"  # basis of counted costs that replace a missing bill

EVERY = sum(BILLED_TYPES.values())
INVOICED = BILLED_TYPES["invoiced_amortized_cost"]  # an arrangement that contains only closed days
# cost types that move fees to the usage that the fees cover
AMORTIZED = BILLED_TYPES["amortized_cost"] | BILLED_TYPES["discounted_amortized_cost"] | INVOICED

_COUNTED_AS = dict.fromkeys(BILLED_DIMENSIONS, "") | {"charge": USAGE, "basis": EXACT, "origin": CALLS}
_COUNTED = {
    name: DerivedDimension(name=name, label=name, sources=(), value=lambda _, constant=value: constant)  # type: ignore[misc]
    for name, value in _COUNTED_AS.items()
}


class BilledSum(NamedTuple):
    """
    A sum of billed costs in units of `spool.money`. `basis`: how it was assigned, such as `exact` or
    `shared`. `arranged`: bits of the cost types that include it.
    """

    dimensions: Dimensions
    charge: str
    basis: str
    arranged: int
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledDay:
    """
    A day of one provider's billed costs. `mark` changes with the content; `revision` counts the changes.

    Corrections of closed months, and invoice amounts that belong to no day, are stored as such days of their
    own.

    `reasons`: amounts without known calls, by reason. `accrued`: amounts that the AMORTIZED cost types add
    to these. Both are in units of `spool.money`. `foreign`: the number of rows in other currencies.
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
    def corrected_day(self) -> str:
        """Return the day that this correction corrects, such as 2026-10-12, or ""."""
        return self.provider.partition(CORRECTS)[2]

    @property
    def is_outside_bill(self) -> bool:
        """
        Return whether this is a correction, an invoice amount or a connection's rows, instead of a day of a
        bill.
        """
        return any(mark in self.provider for mark in (CORRECTS, INVOICE, CONNECTION))

    @property
    def connection(self) -> str:
        return self.provider.partition(CONNECTION)[2].rpartition(":")[0]

    @property
    def seller(self) -> str:
        seller_name = self.provider
        for mark in (CORRECTS, INVOICE, CONNECTION):
            seller_name = seller_name.partition(mark)[0]
        return seller_name


def with_constant_billing_dimensions(query: CostQuery) -> CostQuery:
    """
    Return the query with constants in place of the dimensions of bills, such as charge `usage` and basis
    `exact`, because counted sums do not store them.
    """
    counted_dimensions = {name: _COUNTED[name] for name in query.used_dimensions if name in BILLED_DIMENSIONS}
    return replace(query, derived={**counted_dimensions, **query.derived})


def extend_to_midnight(query: CostQuery, now: float) -> CostQuery:
    """
    Return the query with an end in the future moved to the next midnight UTC, to include today's billed
    costs.
    """
    end = query.until.timestamp()
    if end < now:
        return query
    midnight = -(-end // DAY_S) * DAY_S
    return replace(query, until=datetime.fromtimestamp(midnight, query.until.tzinfo))


def check_billed_days_not_split(days: Iterable[int], instants: Iterable[float]) -> None:
    """Raise NotKept if a time (epoch seconds) lies inside a day that has billed costs."""
    known = set(days)
    for instant in instants:
        start = int(instant // DAY_S) * DAY_S
        if start != instant and start in known:
            raise NotKept(
                "billed costs are stored per whole day in UTC only. Choose periods that begin and "
                f"end at midnight UTC. Your period splits a day at {format_to_second(instant)}"
            )


def whole_day_spans(start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """
    Yield the whole days of a period. Days that lie only partly in it have no billed costs, as
    `check_billed_days_not_split` has checked.
    """
    low, high = -(-start // DAY_S) * DAY_S, -(-end // DAY_S) * DAY_S
    if low < high:
        yield DAY_S, low, high, 0


def day_columns(day: BilledDay) -> dict[str, object]:
    details = {
        "reasons": _amount_texts(day.reasons),
        "accrued": _amount_texts(day.accrued),
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
        "told": json.dumps(details),
    }


def read_day(row: dict[str, Any]) -> BilledDay:
    details = json.loads(row.pop("told"))
    reasons, accrued = (
        {name: money.text_to_units(text) for name, text in details.get(field_name, {}).items()}
        for field_name in ("reasons", "accrued")
    )
    return BilledDay(
        day=row.pop("start"), **row, reasons=reasons, accrued=accrued, foreign=details["foreign"]
    )


def _amount_texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: money.units_to_text(amount) for name, amount in sorted(amounts.items())}
