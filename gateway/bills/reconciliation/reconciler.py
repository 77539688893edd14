"""Reconciliation of months on request, with the newest results stored for metrics and insights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.bills.reconciliation.comparing import Reconciliation, compare
from gateway.bills.reconciliation.gathering import CalendarMonth, StatementSources, gather
from gateway.service.monitoring.snapshot import ReconciledRatio
from spool.clock import Clock

EVERY_S = 3600


@dataclass(frozen=True, kw_only=True)
class ReconciledMonth:
    """
    A month of every provider with a bill. `without` has counted costs of the other providers, in money units.
    """

    month: CalendarMonth
    providers: Sequence[Reconciliation]
    without: Mapping[str, int]


class Reconciler:
    """Runs one comparison at a time, because each reads a month of the ledger."""

    def __init__(self, sources: StatementSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._turn = asyncio.Lock()
        self._mark: object = None
        self._months: Sequence[ReconciledMonth] = ()
        self.newest: Mapping[str, Reconciliation] = {}  # by provider: the newest month with compared days

    async def reconcile(
        self, month: CalendarMonth | None = None, provider: str | None = None
    ) -> ReconciledMonth:
        """Reconcile a month; by default, the current one."""
        async with self._turn:
            return await self._reconcile(month or CalendarMonth.at(self._clock.now()), provider)

    async def look(self) -> Sequence[ReconciledMonth]:
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
            months = [await self._reconcile(month, None) for month in (this.previous, this)] if known else []
        newest: dict[str, Reconciliation] = {}
        for reconciled_month in months:
            for result in reconciled_month.providers:
                if result.compared or result.provider not in newest:
                    newest[result.provider] = result
        self.newest, self._months, self._mark = newest, months, mark
        return months

    async def _reconcile(self, month: CalendarMonth, provider: str | None) -> ReconciledMonth:
        gathered = await gather(self._sources, month, now=self._clock.now(), provider=provider)
        results = [await asyncio.to_thread(compare, sides) for sides in gathered.sides]
        return ReconciledMonth(month=month, providers=results, without=gathered.without)


def gauges(newest: Iterable[Reconciliation]) -> Iterator[ReconciledRatio]:
    """
    Yield the ratio of counted to billed tokens for reconciliations with compared days, and the ratio of money
    if a bill states any.
    """
    for result in newest:
        total = result.total
        pairs = [("tokens", total.counted_tokens, total.billed_tokens)]
        if result.has_money:
            pairs.append(("money", total.counted, total.billed))
        for measure, counted, billed in pairs:
            if result.compared and billed > 0:
                yield ReconciledRatio(provider=result.provider, measure=measure, ratio=counted / billed)
