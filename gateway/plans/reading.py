"""Reads from the ledger what the seats of plans used, and what no plan covers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Protocol

from gateway.plans.beyond import is_beyond
from gateway.plans.coverage import NAME, Coverage
from gateway.plans.cycles import cycles
from gateway.plans.sums import AskedDays, shared
from gateway.plans.uses import SeatUse, Uses
from gateway.reconciliation.gathering import CalendarMonth
from spool.ledger import money
from spool.ledger.derived import Derived
from spool.ledger.queries import TOTAL, CostQuery, CostRow, Wanted
from spool.record import CURRENCY
from spool.registry.registry import Registry
from spool.registry.tables.plans import AssistantPlan
from spool.registry.views import View

_MEASURES = ("cost", "estimated", "errors", "cached", "unpriced")
_DAILY = "daily"


class AskedLedger(Protocol):
    """The ledger, or what somebody may see of it."""

    async def costs_of(self, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]: ...

    def derived(self) -> Sequence[Derived]: ...

    def dimensions(self) -> Sequence[str]: ...


def usable_plans(registry: Registry, dimensions: Sequence[str]) -> list[tuple[AssistantPlan, View]]:
    """
    Return the plans in their order, without those whose view cannot be asked: they cover nothing. Seats and views
    name people as records do.
    """
    views = [(plan, registry.views.find(plan.view_id)) for plan in registry.plans.in_order()]
    as_recorded, matched = registry.plans.as_recorded, registry.views.matched
    return [
        (as_recorded(plan), matched(view))
        for plan, view in views
        if view is not None and not view.broken(dimensions)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class UseReader:
    """
    Reads what was used in a month, as the ledger has it, corrections included, and of billing cycles
    that began before it; money in a currency, too.
    """

    coverage: Coverage
    plans: Sequence[AssistantPlan]
    asked: AskedDays
    month: CalendarMonth
    is_daily: bool = False

    async def read(self, ledger: AskedLedger) -> Uses:
        """Return the uses, those of each day only if that is asked for."""
        uses = Uses()
        await self._add(ledger, uses, TOTAL)
        if self.is_daily:
            await self._add(ledger, uses, _DAILY)
        return uses

    async def add_beyond(self, ledger: AskedLedger, uses: Uses) -> None:
        """Add the days of seats that went beyond what they share, unless all days are known."""
        marks = await asyncio.to_thread(self._beyond, uses)
        if marks and not self.is_daily:
            await self._add(ledger, uses, _DAILY, marks)

    async def _add(
        self, ledger: AskedLedger, uses: Uses, granularity: str, marks: Sequence[str] = ()
    ) -> None:
        currency = self.asked.converter.currency
        queries = await asyncio.to_thread(self._queries, granularity, marks, CURRENCY)
        in_dollars = await ledger.costs_of(queries)
        in_currency = in_dollars
        if currency != CURRENCY and not marks:
            asked = await asyncio.to_thread(self._queries, granularity, marks, currency)
            in_currency = await ledger.costs_of(asked)
        is_day = granularity == _DAILY
        await asyncio.to_thread(self._add_up, uses, is_day, in_dollars, in_currency)

    def _queries(self, granularity: str, marks: Sequence[str], currency: str) -> list[CostQuery]:
        """Thousands of seats take a while: not for the event loop."""
        include: Wanted = {NAME: tuple(marks)} if marks else {}
        return [
            CostQuery(
                since=datetime.fromtimestamp(start, UTC),
                until=datetime.fromtimestamp(end, UTC),
                granularity=granularity,
                group_by=(NAME, "provider", "model"),
                include=include,
                measures=_MEASURES,
                currency=currency,
                derived={NAME: self.coverage.dimension(start)},
            )
            for start, end in self.coverage.spans(self._edges())
        ]

    def _edges(self) -> list[int]:
        """Return where a cycle or the month begins, and the end of the month."""
        edges = {self.month.start, self.month.end}
        for day in {plan.cycle_day for plan in self.plans}:
            starts = (each.start for each in cycles(day, self.month.start, self.month.end))
            edges.update(starts)
        return sorted(edges)

    def _beyond(self, uses: Uses) -> list[str]:
        """Return the marks of seats that share what they include, and used more than that."""
        found: list[str] = []
        for plan in self.plans:
            for cycle, seats in shared(plan, self.asked):
                if is_beyond(plan, cycle, seats, uses, self.month.end):
                    found += [mark for _, mark in seats]
        return list(dict.fromkeys(found))

    def _add_up(
        self,
        uses: Uses,
        is_day: bool,
        in_dollars: Sequence[Sequence[CostRow]],
        in_currency: Sequence[Sequence[CostRow]],
    ) -> None:
        for row in chain.from_iterable(in_dollars):
            if mark := row.group[0]:
                uses.put(mark, int(row.start.timestamp()), _use(row), is_day=is_day)
        for row in chain.from_iterable(in_currency):
            at = int(row.start.timestamp())
            if mark := row.group[0]:
                uses.put(mark, at, SeatUse(worth=_value(row)), is_day=is_day)
            if at < self.month.start:
                continue
            if is_day:
                uses.metered_by_day[at] += 0 if mark else money.units(row.cost)
            else:
                _add_money(uses, row)


def _add_money(uses: Uses, row: CostRow) -> None:
    """Add what calls cost that no plan covers, and name what has no rate."""
    mark = row.group[0]
    if not mark:
        uses.metered += money.units(row.cost)
    elif money.units(row.estimated):
        return  # its value is known, whatever its source charged
    lacking = uses.unvalued if mark else uses.unpaid
    for currency, amount in row.unconverted.items():
        lacking[currency] += money.units(amount)


def _use(row: CostRow) -> SeatUse:
    return SeatUse(
        value=_value(row),
        calls=row.calls - row.errors - row.cached,
        unpriced=row.unpriced,
    )


def _value(row: CostRow) -> int:
    """At list prices; of a model without one, what its source reported, which of a subscription is a list price."""
    return money.units(row.estimated) or money.units(row.cost)
