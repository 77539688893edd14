"""
Makes the billed money of billing connections from the rows of their drops, in the background, as bills are made: day
by day, each in one transaction. What is of a connection that left the costs is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from gateway.billed.closing import mark_of
from gateway.billed.connection_rows import Place, RowRules, Sums, add_rows, reasons_of, sums_of_day
from gateway.reconciliation.gathering import CalendarMonth
from spool.billing.drops import BillingDrops, HourRows
from spool.clock import Clock
from spool.errors import SpoolError
from spool.ledger.billed import CLOSED, CONNECTION, PROVISIONAL, BilledDay
from spool.ledger.ledger import END_OF_TIME, Ledger
from spool.ledger.sums import DAY_S
from spool.registry.connections import BillingConnection

LOOK_S = 60.0
SOURCE = "billing_drops"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RowSources:
    """`connections` are those whose rows are in costs; `owner_tags` name a team or a user."""

    ledger: Ledger
    drops: BillingDrops
    connections: Callable[[], Sequence[BillingConnection]]
    owner_tags: Callable[[], Mapping[str, str]]


class RowBook:
    """`run` it, or `look` once."""

    def __init__(self, sources: RowSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._marks: dict[tuple[str, str], object] = {}  # of months, as they were made last
        self._known: set[str] | None = None  # connections whose rows may be in the ledger

    async def run(self) -> None:
        """Look again and again. Runs until cancelled; a full disk only delays it."""
        while True:
            try:
                await self.look()
            except SpoolError as error:
                _log.warning("rows of connections wait: %s", error, extra={"action": "billed_waits"})
            await asyncio.sleep(LOOK_S)

    async def look(self) -> int:
        """Make the months whose rows or rules changed; how many days changed."""
        connections = self._sources.connections()
        names = {each.id for each in connections}
        changed = 0
        if self._known is None or self._known - names:
            changed += await self._forget(names)
        self._known = names
        for connection in connections:
            for month, newest in (await self._sources.drops.months(connection.id)).items():
                rules = self._rules(connection, month)
                mark = (newest, await self._sources.drops.size(connection.id, month), rules)
                if self._marks.get((connection.id, month)) != mark:
                    changed += await self._make(rules, month, newest)
                    self._marks[connection.id, month] = mark
        return changed

    def _rules(self, connection: BillingConnection, month: str) -> RowRules:
        return RowRules(
            connection=connection.id,
            provider=connection.cloud_provider,
            owner_tags=dict(self._sources.owner_tags()),
            tags=tuple(self._sources.ledger.own_dimensions()),
            is_closed=CalendarMonth.of(month).end <= self._clock.now(),
        )

    async def _make(self, rules: RowRules, month: str, newest: float) -> int:
        hours = await self._sources.drops.month(rules.connection, month)
        key = f"{rules.provider}{CONNECTION}{rules.connection}:{month}"
        found: Sums = {}
        made: set[int] = set()
        changed = 0
        for hour in hours:
            over = sorted(
                day for day in found if day + DAY_S <= hour.hour
            )  # rows come in the order of their hours
            for day in over:
                changed += await self._put(day, found.pop(day), key, rules, newest)
            made.update(over)
            await asyncio.to_thread(_add, found, hour, rules)
        for day, amounts in sorted(found.items()):
            changed += await self._put(day, amounts, key, rules, newest)
        made.update(found)
        for there in await self._days():
            if there.provider == key and there.day not in made:
                await self._sources.ledger.drop_billed(there.day, key)
                changed += 1
        return changed

    async def _put(
        self, day: int, amounts: Mapping[Place, int], key: str, rules: RowRules, newest: float
    ) -> int:
        """Keep a day whose rows are all read; 1 if it changed."""
        sums = await asyncio.to_thread(sums_of_day, amounts)
        reasons, accrued = reasons_of(sums)
        state = CLOSED if rules.is_closed else PROVISIONAL
        made = BilledDay(
            day=day, provider=key, state=state, mark=mark_of(sums, state), source=SOURCE, read_at=newest,
            made_at=self._clock.now(), reasons=reasons, accrued=accrued,
        )  # fmt: skip
        return await self._sources.ledger.put_billed([(made, sums)])

    async def _forget(self, names: Collection[str]) -> int:
        """Forget the rows of connections that are not among these."""
        gone = [day for day in await self._days() if day.connection not in names]
        for day in gone:
            await self._sources.ledger.drop_billed(day.day, day.provider)
        self._marks = {place: mark for place, mark in self._marks.items() if place[0] in names}
        return len(gone)

    async def _days(self) -> list[BilledDay]:
        days = await self._sources.ledger.billed_days(0, END_OF_TIME)
        return [day for day in days if day.connection]


def _add(found: Sums, hour: HourRows, rules: RowRules) -> None:
    add_rows(found, hour.text, rules)
