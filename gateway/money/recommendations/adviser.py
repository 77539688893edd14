"""Looks for savings and keeps what is found: in the background, when an operator asks, and without keeping it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.money.recommendations.evaluation import Evaluation, Known, evaluate, savings
from gateway.money.recommendations.facts import DAY_S, DAYS, recommendation_dimensions
from gateway.money.recommendations.gathering import Chosen, Sources, chosen_by, gather
from gateway.money.recommendations.list import TYPES
from spool.clock import Clock
from spool.ledger import money
from spool.ledger.ledger import Ledger
from spool.ledger.queries import TOTAL, CostQuery, CostRow
from spool.registry.insights import Merged
from spool.registry.recommendations import Realized, Recommendation, Saving
from spool.registry.tables.recommendations import RecommendationTable

EVERY_S = 3600.0

_log = logging.getLogger(__name__)
LEAST_DAYS = 14  # whole days after the one on which it was addressed


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look changed, and the types that failed."""

    merged: Merged
    failed: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What would be found now. `spent` is what all the tokens cost that were looked at, as decimal text."""

    savings: Sequence[Saving]
    spent: str
    failed: Sequence[str]


class Adviser:
    """Looks for savings, one look at a time."""

    def __init__(self, sources: Sources, table: RecommendationTable, clock: Clock) -> None:
        self._sources = sources
        self._table = table
        self._clock = clock
        self._turn = asyncio.Lock()

    @property
    def is_busy(self) -> bool:
        return self._turn.locked()

    async def look(self) -> Look:
        """Looks once, with every type that is switched on, and keeps what is found."""
        async with self._turn:
            now = self._clock.now()
            known = await self._known()
            evaluation, found = await self._evaluate(known, now)
            realized = {
                each.id: amount
                for each in known.recommendations.values()
                if (amount := await realized_by(self._sources.ledger, each, now)) is not None
            }
            merged = await self._table.merge(found, looked_for=evaluation.looked_for, realized=realized)
            return Look(merged=merged, failed=evaluation.failed)

    async def check(
        self,
        *,
        type: str | None = None,
        filters: Mapping[str, Sequence[str]] | None = None,
        may_see: Chosen = lambda _: True,
    ) -> Check:
        """
        Find the savings of one type, or of all, among the calls that pass the filters and are visible;
        nothing is stored.
        """
        async with self._turn:
            known = await self._known()
            passes = chosen_by(filters or {})
            evaluation, found = await self._evaluate(
                known, self._clock.now(), type=type, chosen=lambda each: passes(each) and may_see(each)
            )
            return Check(savings=found, spent=money.text(evaluation.spent), failed=evaluation.failed)

    async def run(self) -> None:
        """Looks again and again. A failure is logged and left to the next look."""
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - the supervised loop
                _log.exception("recommendations wait for the next look", extra={"action": "look_put_off"})
            await asyncio.sleep(EVERY_S)

    async def _known(self) -> Known:
        kept = {each.saving.key: each for each in await self._table.all()}
        return Known(settings=await self._table.types(), recommendations=kept)

    async def _evaluate(
        self, known: Known, now: float, *, type: str | None = None, chosen: Chosen = lambda _: True
    ) -> tuple[Evaluation, Sequence[Saving]]:
        facts, book = await gather(self._sources, now=now, chosen=chosen)
        types = [each for each in TYPES if known.is_enabled(each.NAME) and type in (None, each.NAME)]
        dimensions = recommendation_dimensions(self._sources.ledger.own_dimensions())

        def work() -> tuple[Evaluation, Sequence[Saving]]:
            evaluation = evaluate(facts, types, known)
            return evaluation, savings(facts, evaluation, dimensions=dimensions, price_book=book.version)

        return await asyncio.to_thread(work)


async def realized_by(ledger: Ledger, each: Recommendation, now: float) -> Realized | None:
    """
    Return the money that an addressed recommendation saved, over thirty days at most: the cost of an answered call
    before and after, on the calls after. None if it is not addressed, is about seats, or it is too early to say.

    It is measured on the work as a whole, whatever its model is now, and never more than what was promised
    for as many calls.
    """
    if each.addressed_at is None or each.promised is None or not each.saving.measured_by:
        return None
    addressed = int(each.addressed_at) // DAY_S * DAY_S
    since = addressed + DAY_S
    until = min(int(now) // DAY_S * DAY_S, since + DAYS * DAY_S)
    if until - since < LEAST_DAYS * DAY_S:
        return None
    before = await _cost(ledger, each, addressed - DAYS * DAY_S, addressed)
    after = await _cost(ledger, each, since, until)
    amount = saved(before, after, promised=money.units(each.promised))
    return Realized(amount=money.text(amount), since=_text(since), until=_text(until))


def saved(before: CostRow | None, after: CostRow | None, *, promised: int) -> int:
    """
    Return the saved amount in units of money; 0 if there is nothing to compare, or an answered call costs
    more than before.
    """
    if before is None or after is None:
        return 0
    answered_before, answered_after = (row.calls - row.errors for row in (before, after))
    if not answered_before or not answered_after:
        return 0
    would_cost = money.units(before.cost) * answered_after // answered_before
    most = promised * answered_after // answered_before
    return max(0, min(would_cost - money.units(after.cost), most))


async def _cost(ledger: Ledger, each: Recommendation, since: int, until: int) -> CostRow | None:
    known = ledger.own_dimensions()
    include = {name: (value,) for name, value in each.saving.measured_by.items() if name in known}
    query = CostQuery(since=_at(since), until=_at(until), granularity=TOTAL, include=include)
    return next(iter(await ledger.costs(query)), None)


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _text(seconds: int) -> str:
    return _at(seconds).strftime("%Y-%m-%d")
