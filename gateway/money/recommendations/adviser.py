"""
Search for savings, in the background and on request. The search stores its results. A check stores nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter

from gateway.money.recommendations.evaluation import Evaluation, StoredAdvice, build_savings, evaluate_types
from gateway.money.recommendations.facts import DAY_S, DAYS, recommendation_dimensions
from gateway.money.recommendations.gathering import (
    DimensionsTest,
    Sources,
    filter_predicate,
    gather_saving_facts,
)
from gateway.money.recommendations.list import TYPES
from spool import money
from spool.clock import Clock
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.loops import failure_logger, for_each_item, repeat
from spool.registry.insights import FindingMergeCounts
from spool.registry.recommendations import Realized, Recommendation, Saving
from spool.registry.tables.recommendations import RecommendationTable

EVERY_S = 3600.0
RETRY_S = 60.0  # seconds until the next try while totals are counted again

_log = logging.getLogger(__name__)
LEAST_DAYS = 14  # minimum whole days after a recommendation was addressed, before its effect is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviserRun:
    """
    The result of a search that stores savings: the changes, and the types of recommendations that failed.
    """

    merged: FindingMergeCounts
    failed: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsPreview:
    """
    The result of a search that stores nothing. `spent` is the cost of all examined tokens, as decimal text.
    `failed` lists the types that failed.
    """

    savings: Sequence[Saving]
    spent: str
    failed: Sequence[str]


class RecommendationUpdater:
    def __init__(self, sources: Sources, table: RecommendationTable, clock: Clock) -> None:
        self._sources = sources
        self._table = table
        self._clock = clock
        self._turn = asyncio.Lock()

    @property
    def is_busy(self) -> bool:
        return self._turn.locked()

    async def find_and_store_savings(self) -> AdviserRun:
        async with self._turn:
            now = self._clock.now()
            known = await self._read_known()
            evaluation, savings = await self._evaluate_types(known, now)
            realized: dict[str, Realized] = {}

            async def read_realized_saving(recommendation: Recommendation) -> None:
                amount = await realized_saving(self._sources.ledger, recommendation, now)
                if amount is not None:
                    realized[recommendation.id] = amount

            log = failure_logger(
                "a realized saving could not be read", action="saving_not_read", name=attrgetter("id")
            )
            await for_each_item(known.recommendations.values(), read_realized_saving, log)
            merged = await self._table.merge_savings(
                savings, looked_for=evaluation.looked_for, realized=realized
            )
            return AdviserRun(merged=merged, failed=evaluation.failed)

    async def find_savings(
        self,
        *,
        type: str | None = None,
        filters: Mapping[str, Sequence[str]] | None = None,
        may_see: DimensionsTest = lambda _: True,
    ) -> SavingsPreview:
        """
        Find the savings of one type, or of all types, among the visible calls that match the filters.
        Nothing is stored.
        """
        async with self._turn:
            known = await self._read_known()
            passes = filter_predicate(filters or {})
            evaluation, savings = await self._evaluate_types(
                known,
                self._clock.now(),
                type=type,
                chosen=lambda dimensions: passes(dimensions) and may_see(dimensions),
            )
            return SavingsPreview(
                savings=savings, spent=money.units_to_text(evaluation.spent), failed=evaluation.failed
            )

    async def run(self) -> None:
        """Look for savings periodically."""
        await repeat(
            self.find_and_store_savings,
            every_s=EVERY_S,
            failed="the recommendations could not be updated; the next run tries again",
            action="look_put_off",
            incomplete_s=RETRY_S,
        )

    async def _read_known(self) -> StoredAdvice:
        recommendations = {
            recommendation.saving.key: recommendation for recommendation in await self._table.all()
        }
        return StoredAdvice(
            settings=await self._table.stored_type_settings(), recommendations=recommendations
        )

    async def _evaluate_types(
        self,
        stored_advice: StoredAdvice,
        now: float,
        *,
        type: str | None = None,
        chosen: DimensionsTest = lambda _: True,
    ) -> tuple[Evaluation, Sequence[Saving]]:
        facts, book = await gather_saving_facts(self._sources, now=now, chosen=chosen)
        types = [
            recommendation_type
            for recommendation_type in TYPES
            if stored_advice.is_enabled(recommendation_type.NAME) and type in (None, recommendation_type.NAME)
        ]
        dimensions = recommendation_dimensions(self._sources.ledger.builtin_and_tag_dimensions())

        def evaluate_types_and_build_savings() -> tuple[Evaluation, Sequence[Saving]]:
            evaluation = evaluate_types(facts, types, stored_advice)
            return evaluation, build_savings(
                facts, evaluation, dimensions=dimensions, price_book=book.version
            )

        return await asyncio.to_thread(evaluate_types_and_build_savings)


async def realized_saving(ledger: Ledger, recommendation: Recommendation, now: float) -> Realized | None:
    """
    Return the money that an addressed recommendation saved within at most thirty days.

    The mean cost of a successful call afterwards is compared with the mean cost before, and multiplied by the
    calls afterwards. All calls that do the recommendation's work count, even if they use another model now.
    The result never exceeds the promised savings for the same number of calls. Returns None if the
    recommendation is not addressed, is about seats, or was addressed too recently.
    """
    if (
        recommendation.addressed_at is None
        or recommendation.promised is None
        or not recommendation.saving.measured_by
    ):
        return None
    addressed = int(recommendation.addressed_at) // DAY_S * DAY_S
    since = addressed + DAY_S
    until = min(int(now) // DAY_S * DAY_S, since + DAYS * DAY_S)
    if until - since < LEAST_DAYS * DAY_S:
        return None
    before = await _measured_cost(ledger, recommendation, addressed - DAYS * DAY_S, addressed)
    after = await _measured_cost(ledger, recommendation, since, until)
    amount = saved_amount(before, after, promised=money.text_to_units(recommendation.promised))
    return Realized(amount=money.units_to_text(amount), since=_format_day(since), until=_format_day(until))


def saved_amount(before: CostRow | None, after: CostRow | None, *, promised: int) -> int:
    """
    Return the amount that a change saved, in units of money: what the successful calls of `after` would have
    cost before, minus their cost. It is at most `promised`, scaled to their number. It is 0 if there is
    nothing to compare, or if a call now costs more.
    """
    if before is None or after is None:
        return 0
    answered_before, answered_after = (row.calls - row.errors for row in (before, after))
    if not answered_before or not answered_after:
        return 0
    would_cost = money.text_to_units(before.cost) * answered_after // answered_before
    limit = promised * answered_after // answered_before
    return max(0, min(would_cost - money.text_to_units(after.cost), limit))


async def _measured_cost(
    ledger: Ledger, recommendation: Recommendation, since: int, until: int
) -> CostRow | None:
    known = ledger.builtin_and_tag_dimensions()
    include = {name: (value,) for name, value in recommendation.saving.measured_by.items() if name in known}
    query = CostQuery(
        since=_to_datetime(since), until=_to_datetime(until), granularity=TOTAL, include=include
    )
    return next(iter(await ledger.costs(query)), None)


def _to_datetime(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _format_day(seconds: int) -> str:
    return _to_datetime(seconds).strftime("%Y-%m-%d")
