"""The result of a cost query, and the choice of the totals from which it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, runtime_checkable

from gateway.bills.contracts.declared import all_contracts, has_amounts
from gateway.bills.plans.declared import PlanTable
from gateway.core.first_use import import_in_thread
from gateway.intake.prices import PriceBook
from gateway.money.costs.earlier_period import (
    ComparedTimes,
    EarlierPeriodCoverage,
    find_earlier_period_coverage,
    queries_of_spans,
    read_compared_times,
)
from gateway.money.costs.listing import repeat_while_listing_changes
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.reader import CostReader
from spool.errors import NotKept
from spool.ledger import work
from spool.ledger.billed import COUNTED
from spool.ledger.costs import partial_period_starts
from spool.ledger.dimensions import PLAN_TYPES, TOTAL, Group
from spool.ledger.queries import CostQuery, CostRow, CostsLedger
from spool.record import utc_iso
from spool.registry.registry import Registry


@dataclass(frozen=True, kw_only=True)
class CostAnswer:
    """
    The result of a cost query.

    `query` is the query that was run. If it has a `top`, it names the groups that are not summed as others.
    If an earlier time was requested, `past` states how much of it is known. If it is known completely,
    `compared` states both spans, and `query` covers the later one. `before` are the earlier rows for the same
    groups, from the query `previous`. `previous` is None without `compared`, and if the spans have different
    lengths.

    `ledger` can run further queries about the same calls and money. `billed` is None for counted costs. For
    billed money, it states how final the days are. For people who see all calls, it also has the billed money
    that no call explains. From `whole_since` on, the totals contain all records. If the query groups by a
    unit of work, `unlisted` is the sum of units that are no longer listed. It is None for costs that include
    those of runs below, because such groups overlap.
    """

    question: CostQuestion
    ledger: CostsLedger
    query: CostQuery
    rows: Sequence[CostRow]
    past: EarlierPeriodCoverage | None
    compared: ComparedTimes | None
    previous: CostQuery | None
    before: Sequence[CostRow]
    billed: Mapping[str, object] | None
    whole_since: float
    unlisted: CostRow | None = None

    @property
    def incomplete_before(self) -> str | None:
        """Return the time before which records may have been deleted before they were counted."""
        since = (self.previous or self.query).since
        return utc_iso(self.whole_since) if since.timestamp() < self.whole_since else None

    @property
    def partial_periods(self) -> Sequence[datetime]:
        return partial_period_starts(self.query)


async def answer_costs(
    question: CostQuestion,
    reader: CostReader,
    now: float,
    *,
    prices: Callable[[], PriceBook],
    only_day_states: bool = False,
) -> CostAnswer:
    """
    Run a cost query. If `only_day_states`, `billed` states only how final the days are.

    Raises Refusal 403 for money that the roles hide, NotKept if the range begins or ends within a stored
    total, and AskedTooMuch if the query is too large.
    """

    async def build_cost_answer() -> CostAnswer:
        return await _answer_without_retry(
            question, reader, now, prices=prices, only_day_states=only_day_states
        )

    # whole: asks again if lists changed; the answer has visible calls
    return await repeat_while_listing_changes(reader.whole, question.query, build_cost_answer)


@runtime_checkable
class FilledLedger(CostsLedger, Protocol):
    """
    A ledger that uses counted costs for days without a bill. `counted` is the amount that its last query
    added.
    """

    counted: str


async def _answer_without_retry(
    question: CostQuestion,
    reader: CostReader,
    now: float,
    *,
    prices: Callable[[], PriceBook],
    only_day_states: bool,
) -> CostAnswer:
    ledger = await ledger_for_question(question, reader, now, prices=prices)
    query, spans = question.query, question.compared_spans
    past, compared, previous = None, None, None
    if spans:
        visible = reader.ledger_for_cost_types(question.cost_types)
        past = await find_earlier_period_coverage(query, spans, visible, now)
        if past.is_fully_covered:
            compared = await read_compared_times(query, spans, ledger, now)
            query, earlier = queries_of_spans(query, spans)
            previous = earlier if spans.is_comparable else None
    rows = await ledger.costs(replace(query, top=question.top, top_by=question.top_by))
    filled = {COUNTED: ledger.counted} if isinstance(ledger, FilledLedger) else {}
    if question.top is not None:
        shown_groups = await asyncio.to_thread(_distinct_groups, rows) | {(None,) * len(query.group_by)}
        query, previous = replace(query, kept=shown_groups), previous and replace(previous, kept=shown_groups)
    try:
        before = [] if previous is None else await ledger.costs(previous)
    except NotKept:
        if query.granularity == TOTAL:
            raise
        # no comparison, because the earlier hours are no longer stored
        alone = await _answer_without_retry(
            replace(question, earlier=None), reader, now, prices=prices, only_day_states=only_day_states
        )
        return replace(alone, past=past)
    billed = await billing_status_of_query(query, reader, now, only_day_states=only_day_states)
    return CostAnswer(
        question=question,
        ledger=ledger,
        query=query,
        rows=rows,
        past=past,
        compared=compared,
        previous=previous,
        before=before,
        billed=billed and {**billed, **filled},
        # whole: the start of the hourly sums, which says nothing about a call
        whole_since=await reader.whole.start_of_complete_hours(),
        unlisted=await _row_of_units_merged_into_other(ledger, query, reader),
    )


async def _row_of_units_merged_into_other(
    ledger: CostsLedger, query: CostQuery, reader: CostReader
) -> CostRow | None:
    if (
        query.work_unit_group_index is None
        or query.aggregated
        # whole: only whether the visible sum of (other) is read
        or not await reader.whole.has_units_merged_into_other()
    ):
        return None
    unit = query.group_by[query.work_unit_group_index]
    if work.OTHER not in query.include.get(unit, (work.OTHER,)):
        return None
    include = {**query.include, unit: (work.OTHER,)}
    rows = await ledger.costs(
        replace(query, group_by=(), include=include, granularity=TOTAL, kept=None, top=None)
    )
    return next(iter(rows), None)


def has_plans_or_contract_amounts(registry: Registry | None) -> bool:
    if registry is None:
        return False
    return bool(registry.declared_table(PlanTable).all()) or any(map(has_amounts, all_contracts(registry)))


async def ledger_for_question(
    question: CostQuestion, reader: CostReader, now: float, *, prices: Callable[[], PriceBook]
) -> CostsLedger:
    """
    Return the totals for a query, limited to the calls that are visible in its cost type.

    A cost type of PLAN_TYPES counts either only the calls that plans of assistants cover, or only the other
    calls. PAID_COST adds the fees of seats and the amounts of contracts up to `now`. If the query fills
    missing bills, counted money replaces them. Raises Refusal 403 for money that the roles hide.
    """
    ledger = reader.ledger_for_cost_types(question.cost_types)
    if question.fills:
        await import_in_thread("gateway.bills.billed.details")
        from gateway.bills.billed.details import LedgerWithUnbilledDaysFilled

        # whole: the days without a bill; the filled sums are visible calls
        return LedgerWithUnbilledDaysFilled(ledger, reader.whole)
    if question.cost_type in PLAN_TYPES:
        await import_in_thread("gateway.bills.plans.fees")
        from gateway.bills.plans import fees

        registry = reader.require_registry()
        return fees.ledger_divided_by_plans(
            # whole: a seat's fee is divided by all use of the seat; the sums are visible calls
            ledger,
            reader.whole,
            registry,
            question.cost_type,
            now,
            prices=prices,
        )
    return ledger


async def billing_status_of_query(
    query: CostQuery, reader: CostReader, now: float, *, only_day_states: bool = False
) -> Mapping[str, object] | None:
    if not query.arranged:
        return None
    await import_in_thread("gateway.bills.billed.details")
    from gateway.bills.billed import details

    is_limited = reader.has_limited_data_access or only_day_states
    # whole: a limited person gets only the states of days
    return await details.billed_cost_details(reader.whole, query, now, only_day_states=is_limited)


def _distinct_groups(rows: Sequence[CostRow]) -> frozenset[Group]:
    return frozenset([row.group for row in rows])
