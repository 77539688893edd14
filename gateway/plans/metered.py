"""The ledger without the calls that plans of assistants cover: what is left is paid by the call."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain

from gateway.plans.coverage import NAME, Coverage
from gateway.plans.reading import AskedLedger, usable_plans
from spool.ledger import money
from spool.ledger.costs import combined, periods
from spool.ledger.queries import TOTAL, CostQuery, CostRow, Group, within
from spool.registry.registry import Registry

_NOT_COVERED = ("",)
_Place = tuple[datetime, Group]


class MeteredLedger:
    """Asks a ledger about the calls that no plan covers."""

    def __init__(self, ledger: AskedLedger, coverage: Coverage) -> None:
        self._ledger = ledger
        self._coverage = coverage

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
        uncovered = within(query, include={NAME: _NOT_COVERED}, exclude={})
        parts = []
        for start, end in self._coverage.spans(since, until):
            seat = self._coverage.dimension(start)
            part = replace(
                uncovered,
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
        by_name = sorted(await self.costs(asked), key=lambda row: _texts(row.group))
        largest = sorted(by_name, key=lambda row: -_size(row, query.top_by))
        groups = [row.group for row in largest[:top]]
        unknown = (None,) * len(query.group_by)
        return frozenset([unknown, *groups])


def metered_of(ledger: AskedLedger, registry: Registry) -> MeteredLedger:
    """Return a ledger, or what somebody may see of it, without the calls that the plans of now cover."""
    return MeteredLedger(ledger, Coverage(usable_plans(registry, ledger.dimensions()), ledger.derived()))


def _together(query: CostQuery, found: Sequence[Sequence[CostRow]]) -> list[CostRow]:
    """Return the rows of all parts, those of a period and a group as one."""
    starts = [start for start, _ in periods(query)]
    places: dict[_Place, list[CostRow]] = defaultdict(list)
    for row in chain.from_iterable(found):
        period = bisect_right(starts, row.start) - 1
        places[starts[period], row.group].append(row)
    rows = []
    for place in sorted(places, key=_order):
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
