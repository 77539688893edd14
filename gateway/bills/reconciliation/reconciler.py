"""
Reconciliation of months on request. Results stay in memory until an input changes, and the newest ones are stored
for metrics and insights.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.comparing import Reconciliation, compare_bill_with_ledger
from gateway.bills.reconciliation.gathering import (
    ReconciliationInputs,
    StatementSources,
    catch_up_and_read_inputs,
    read_bills_and_counted_usage,
)
from gateway.monitoring.snapshot import ReconciledRatio
from spool.clock import Clock

EVERY_S = 3600
MOST_MONTHS = 12  # maximum comparison results in memory


@dataclass(frozen=True, kw_only=True)
class ReconciledMonth:
    """
    The result for each provider with a bill in a month. `without` has counted costs of the other providers,
    in money units.
    """

    month: CalendarMonth
    providers: Sequence[Reconciliation]
    without: Mapping[str, int]

    def narrow_to_provider(self, provider: str | None) -> ReconciledMonth:
        """Return only one provider's result, or everything if `provider` is None."""
        if provider is None:
            return self
        return replace(
            self,
            providers=[each for each in self.providers if each.provider == provider],
            without={name: cost for name, cost in self.without.items() if name == provider},
        )


class BillReconciler:
    """
    Compares bills with counted usage. It searches the causes of only one month at a time, because each search
    reads a month of the ledger.
    """

    def __init__(self, sources: StatementSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._turn = asyncio.Lock()
        self._mark: object = None
        self._months: Sequence[ReconciledMonth] = ()
        self._known: OrderedDict[str, tuple[ReconciliationInputs, ReconciledMonth]] = OrderedDict()
        self.newest: Mapping[str, Reconciliation] = {}  # provider -> newest month with compared days

    async def reconcile(
        self, month: CalendarMonth | None = None, provider: str | None = None, *, has_causes: bool = True
    ) -> ReconciledMonth:
        """
        Reconcile a month; by default, the current one. Without `has_causes`, return only totals, without waiting
        for a search of causes.
        """
        month = month or CalendarMonth.at(self._clock.now())
        turn = self._turn if has_causes else nullcontext()
        async with turn:
            return (await self._reconcile_month(month, has_causes=has_causes)).narrow_to_provider(provider)

    async def reconcile_recent_months(self) -> Sequence[ReconciledMonth]:
        """
        Reconcile this month and the previous one, if an hour has passed or a bill was imported. Store
        the newest results.
        """
        async with self._turn:
            now = self._clock.now()
            known = await self._sources.statements.statements()
            mark = (int(now) // EVERY_S, len(known), max((info.imported_at for info in known), default=0.0))
            if mark == self._mark:
                return self._months
            this = CalendarMonth.at(now)
            months = [await self._reconcile_month(month) for month in (this.previous, this)] if known else []
        newest: dict[str, Reconciliation] = {}
        for reconciled_month in months:
            for result in reconciled_month.providers:
                if result.has_final_day or result.provider not in newest:
                    newest[result.provider] = result
        self.newest, self._months, self._mark = newest, months, mark
        return months

    async def _reconcile_month(self, month: CalendarMonth, *, has_causes: bool = True) -> ReconciledMonth:
        now = self._clock.now()
        inputs, book = await catch_up_and_read_inputs(self._sources, month, now=now)
        known_inputs, known = self._known.get(month.name, (None, None))
        if known is not None and await asyncio.to_thread(inputs.__eq__, known_inputs):
            self._known.move_to_end(month.name)
            return known
        gathered = await read_bills_and_counted_usage(
            self._sources, inputs, book, now=now, includes_hours=has_causes
        )
        search = partial(compare_bill_with_ledger, has_causes=has_causes)
        results = [await asyncio.to_thread(search, sides) for sides in gathered.sides]
        reconciled = ReconciledMonth(month=month, providers=results, without=gathered.without)
        if has_causes and not gathered.is_foreign:
            self._known[month.name] = inputs, reconciled
            self._known.move_to_end(month.name)
            if len(self._known) > MOST_MONTHS:
                self._known.popitem(last=False)
        return reconciled


def reconciliation_gauges(newest_reconciliations: Iterable[Reconciliation]) -> Iterator[ReconciledRatio]:
    """
    Yield the ratio of counted to billed tokens for reconciliations with compared days, and the ratio of money
    if a bill states any.
    """
    for result in newest_reconciliations:
        total = result.total
        pairs = [("tokens", total.counted_tokens, total.billed_tokens)]
        if result.has_money:
            pairs.append(("money", total.counted, total.billed))
        for measure, counted, billed in pairs:
            if result.has_final_day and billed > 0:
                yield ReconciledRatio(provider=result.provider, measure=measure, ratio=counted / billed)
