"""Usage of seats, read from the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

from gateway.bills.months import CalendarMonth
from gateway.bills.plans.coverage import NAME, SeatCoverageRule, VisibleLedger
from gateway.bills.plans.declared import AssistantPlan
from gateway.bills.plans.sums import SeatUsage, SeatUse, billing_cycles
from spool import money
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, CostRow
from spool.record import CURRENCY

_MEASURES = ("cost", "estimated", "errors", "cached", "unpriced")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatUseReader:
    """
    Reads the usage of seats in a month and since their billing cycles began, and the calls that no plan
    covers. Corrections are included.
    """

    coverage: SeatCoverageRule
    plans: Sequence[AssistantPlan]
    month: CalendarMonth
    currency: str

    async def read_uses(self, ledger: VisibleLedger) -> SeatUsage:
        in_dollars = await self._fetch_rows(ledger, CURRENCY)
        in_currency = in_dollars
        if self.currency != CURRENCY:
            in_currency = await self._fetch_rows(ledger, self.currency)
        return await asyncio.to_thread(self._sum_uses, in_dollars, in_currency)

    async def _fetch_rows(self, ledger: VisibleLedger, currency: str) -> Sequence[Sequence[CostRow]]:
        # runs in a thread, because it is slow with thousands of seats
        queries = await asyncio.to_thread(self._span_queries, currency)
        return await ledger.costs_of_queries(queries)

    def _span_queries(self, currency: str) -> list[CostQuery]:
        return [
            CostQuery(
                since=datetime.fromtimestamp(start, UTC),
                until=datetime.fromtimestamp(end, UTC),
                granularity=TOTAL,
                group_by=(NAME, "provider", "model"),
                measures=_MEASURES,
                currency=currency,
                derived={NAME: self.coverage.seat_dimension(start)},
            )
            for start, end in self.coverage.split_into_spans(self._month_and_cycle_boundaries())
        ]

    def _month_and_cycle_boundaries(self) -> list[int]:
        edges = {self.month.start, self.month.end}
        for day in {plan.cycle_day for plan in self.plans}:
            edges.update(cycle.start for cycle in billing_cycles(day, self.month.start, self.month.end))
        return sorted(edges)

    def _sum_uses(
        self, in_dollars: Sequence[Sequence[CostRow]], in_currency: Sequence[Sequence[CostRow]]
    ) -> SeatUsage:
        uses = SeatUsage()
        for row in chain.from_iterable(in_dollars):
            if mark := row.group[0]:
                calls = row.calls - row.errors - row.cached
                use = SeatUse(value=_value_at_list_prices(row), calls=calls, unpriced=row.unpriced)
                uses.add_use(mark, int(row.start.timestamp()), use)
        for row in chain.from_iterable(in_currency):
            at = int(row.start.timestamp())
            if mark := row.group[0]:
                uses.add_use(mark, at, SeatUse(worth=_value_at_list_prices(row)))
            if at >= self.month.start:
                _add_money(uses, row)
        return uses


def _value_at_list_prices(row: CostRow) -> int:
    """
    Return the row's value at list prices. Without a list price, it is the reported cost, because sources
    report list prices for models that a subscription pays.
    """
    return money.text_to_units(row.estimated) or money.text_to_units(row.cost)


def _add_money(uses: SeatUsage, row: CostRow) -> None:
    mark = row.group[0]
    if not mark:
        uses.metered += money.text_to_units(row.cost)
    elif money.text_to_units(row.estimated):
        return  # the list price already gives the value of the covered calls, so their reported cost is not needed
    lacking = uses.unvalued if mark else uses.unpaid
    for currency, amount in row.unconverted.items():
        lacking[currency] += money.text_to_units(amount)
