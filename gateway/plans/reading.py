"""Reads from the ledger what the seats of plans used in a month, and what no plan covers."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Protocol

from gateway.plans.coverage import NAME, Coverage
from gateway.plans.sums import SeatUse
from gateway.reconciliation.gathering import CalendarMonth
from spool.ledger import money
from spool.ledger.derived import Derived
from spool.ledger.queries import TOTAL, CostQuery, CostRow
from spool.record import CURRENCY
from spool.registry.registry import Registry
from spool.registry.tables.plans import AssistantPlan
from spool.registry.views import View

_MEASURES = ("cost", "estimated", "errors", "cached", "unpriced")


class AskedLedger(Protocol):
    """The ledger, or what somebody may see of it."""

    async def costs_of(self, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]: ...

    def derived(self) -> Sequence[Derived]: ...

    def dimensions(self) -> Sequence[str]: ...


@dataclass(slots=True)
class Uses:
    """
    By the mark of a seat; `metered` is the counted cost of the calls that no plan covers, in units. What no rate is
    known for is by its currency: of these calls in `unpaid`, of covered ones in `unvalued`.
    """

    seats: dict[str, SeatUse] = field(default_factory=lambda: defaultdict(SeatUse))
    metered: int = 0
    unpaid: Counter[str] = field(default_factory=Counter)
    unvalued: Counter[str] = field(default_factory=Counter)


def usable_plans(registry: Registry, dimensions: Sequence[str]) -> list[tuple[AssistantPlan, View]]:
    """Return the plans in their order, without those whose view cannot be asked: they cover nothing."""
    views = [(plan, registry.views.find(plan.view_id)) for plan in registry.plans.in_order()]
    return [(plan, view) for plan, view in views if view is not None and not view.broken(dimensions)]


async def read_uses(
    ledger: AskedLedger, coverage: Coverage, month: CalendarMonth, currency: str = CURRENCY
) -> Uses:
    """Return what was used in a month, as the ledger has it, corrections included; money in a currency, too."""
    queries = await asyncio.to_thread(_queries, coverage, month, CURRENCY)  # thousands of seats take a while
    found = await ledger.costs_of(queries)
    if currency == CURRENCY:
        return await asyncio.to_thread(_added_up, found, found)
    asked = await asyncio.to_thread(_queries, coverage, month, currency)
    return await asyncio.to_thread(_added_up, found, await ledger.costs_of(asked))


def _queries(coverage: Coverage, month: CalendarMonth, currency: str) -> list[CostQuery]:
    return [
        CostQuery(
            since=datetime.fromtimestamp(start, UTC),
            until=datetime.fromtimestamp(end, UTC),
            granularity=TOTAL,
            group_by=(NAME, "provider", "model"),
            measures=_MEASURES,
            currency=currency,
            derived={NAME: coverage.dimension(start)},
        )
        for start, end in coverage.spans(month.start, month.end)
    ]


def _added_up(in_dollars: Sequence[Sequence[CostRow]], asked: Sequence[Sequence[CostRow]]) -> Uses:
    uses = Uses()
    for row in chain.from_iterable(in_dollars):
        if mark := row.group[0]:
            uses.seats[mark] = uses.seats[mark].plus(_use(row))
    for row in chain.from_iterable(asked):
        mark = row.group[0]
        if mark:
            uses.seats[mark] = uses.seats[mark].plus(SeatUse(worth=_value(row)))
        else:
            uses.metered += money.units(row.cost)
        if mark and money.units(row.estimated):
            continue  # its value is known, whatever its source charged
        lacking = uses.unvalued if mark else uses.unpaid
        for currency, amount in row.unconverted.items():
            lacking[currency] += money.units(amount)
    return uses


def _use(row: CostRow) -> SeatUse:
    return SeatUse(
        value=_value(row),
        calls=row.calls - row.errors - row.cached,
        unpriced=row.unpriced,
    )


def _value(row: CostRow) -> int:
    """At list prices; of a model without one, what its source reported, which of a subscription is a list price."""
    return money.units(row.estimated) or money.units(row.cost)
