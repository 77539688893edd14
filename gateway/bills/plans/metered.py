"""The ledger without the calls that plans of assistants cover, which are paid by the call; or these calls alone."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Protocol

from gateway.bills.plans.coverage import NAME, Coverage, usable_plans
from spool.ledger import money
from spool.ledger.costs import combined, periods
from spool.ledger.derived import Derived
from spool.ledger.queries import METERED_COST, TOTAL, CostQuery, CostRow, Group, Wanted, within
from spool.registry.registry import Registry
from spool.turns.ordering import ordered

_NOT_COVERED = ("",)
_Place = tuple[datetime, Group]


class AskedLedger(Protocol):
    """The ledger, or what somebody may see of it."""

    async def costs_of(self, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]: ...

    def derived(self) -> Sequence[Derived]: ...

    def dimensions(self) -> Sequence[str]: ...


class DividedLedger:
    """Asks a ledger about the calls that no plan covers, or about the others."""

    def __init__(self, ledger: AskedLedger, coverage: Coverage, cost_type: str) -> None:
        """`cost_type` is one of PLAN_TYPES."""
        self._ledger = ledger
        self._coverage = coverage
        self._side = "include" if cost_type == METERED_COST else "exclude"

    async def costs(self, query: CostQuery) -> Sequence[CostRow]:
        """Return costs as `Ledger.costs` does. Seats change at midnight (UTC), so a period may be asked in parts."""
        if query.top is not None:
            query = replace(query, top=None, kept=await self._largest(query, query.top))
        parts = await asyncio.to_thread(self._parts, query)  # thousands of seats take a while
        found = await self._ledger.costs_of(parts)
        return await asyncio.to_thread(_together, query, found)

    def _parts(self, query: CostQuery) -> Sequence[CostQuery]:
        """Return a question for each span in which the same seats are held."""
        since, until = int(query.since.timestamp()), int(query.until.timestamp())
        sides: dict[str, Wanted] = {"include": {}, "exclude": {}}
        sides[self._side] = {NAME: _NOT_COVERED}
        divided = within(query, **sides)
        parts = []
        for start, end in self._coverage.spans((since, until)):
            seat = self._coverage.dimension(start)
            part = replace(
                divided,
                since=datetime.fromtimestamp(start, query.zone),
                until=datetime.fromtimestamp(end, query.zone),
                derived={**query.derived, NAME: seat},
            )
            parts.append(part)
        return parts

    async def _largest(self, query: CostQuery, top: int) -> frozenset[Group]:
        """The largest groups of the whole time, and the unknown one."""
        asked = replace(
            query,
            top=None,
            granularity=TOTAL,
            measures=(query.top_by,),
            meter="",
        )
        rows = await self.costs(asked)
        groups = await asyncio.to_thread(_first, rows, query.top_by, top)
        unknown = (None,) * len(query.group_by)
        return frozenset([unknown, *groups])


def divided(ledger: AskedLedger, registry: Registry, cost_type: str) -> DividedLedger:
    """Return a ledger, or what somebody may see of it, divided by what the plans of now cover."""
    plans = usable_plans(registry, ledger.dimensions())
    return DividedLedger(ledger, Coverage(plans, ledger.derived(), registry.people), cost_type)


def _first(rows: Sequence[CostRow], name: str, top: int) -> list[Group]:
    """Return the groups of the largest rows; of equal ones those that are first by their names."""
    by_name = ordered(rows, lambda row: _texts(row.group))
    largest = ordered(by_name, lambda row: -_size(row, name))
    return [row.group for row in largest[:top]]


def _together(query: CostQuery, found: Sequence[Sequence[CostRow]]) -> list[CostRow]:
    """Return the rows of all parts, those of a period and a group as one."""
    starts = [start for start, _ in periods(query)]
    places: dict[_Place, list[CostRow]] = defaultdict(list)
    for row in chain.from_iterable(found):
        period = bisect_right(starts, row.start) - 1
        places[starts[period], row.group].append(row)
    rows = []
    for place in ordered(places, _order):
        start, group = place
        rows.append(combined(places[place], start=start, group=group))
    return rows


def _size(row: CostRow, name: str) -> int:
    value = getattr(row, name)
    return money.units(value) if isinstance(value, str) else int(value)


def _order(place: _Place) -> tuple[datetime, list[str]]:
    start, group = place
    return start, _texts(group)


def _texts(group: Group) -> list[str]:
    return [value or "" for value in group]
