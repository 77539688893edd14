"""
Plans whose seats cover no call, although calls of the plan's view belong to nobody with a seat. Probably the
seats and the calls name people differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from gateway.bills.months import CalendarMonth
from gateway.bills.plans.coverage import (
    NAME,
    NOT_COVERED,
    SeatCoverageRule,
    VisibleLedger,
    is_seat_held,
    make_seat_id,
)
from gateway.bills.plans.declared import AssistantPlan
from gateway.bills.plans.sums import SeatUsage
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, narrow_query
from spool.people import People
from spool.registry.views import SavedView
from spool.statements import day_text

PlanAndView = tuple[AssistantPlan, SavedView]


async def seat_name_mismatch_sentences_by_plan(
    ledger: VisibleLedger,
    coverage: SeatCoverageRule,
    plans: Sequence[PlanAndView],
    seat_usage: SeatUsage,
    month: CalendarMonth,
    people: People,
) -> Mapping[str, str]:
    """
    Describe, by plan id, each plan whose seats cover no call of the month although calls of its view have no
    seat.

    A plan is left out if one of its people made a call under another plan.
    """
    sentences = {}
    for plan, view in _plans_without_users(plans, seat_usage, month, people):
        calls = await _count_calls_without_seat(ledger, coverage, view, month)
        if calls:
            word = "call" if calls == 1 else "calls"
            verb = "has" if calls == 1 else "have"
            sentences[plan.id] = f"{calls:,} {word} of {view.name} {verb} no seat: the names differ"
    return sentences


def _plans_without_users(
    plans: Sequence[PlanAndView], seat_usage: SeatUsage, month: CalendarMonth, people: People
) -> Iterable[PlanAndView]:
    days = [day_text(day) for day in month.days]
    busy: set[str] = set()
    seated: list[set[str]] = []
    for plan, _ in plans:
        names: set[str] = set()
        for index, seat in enumerate(plan.seats):
            if any(is_seat_held(seat, day) for day in days):
                name = people.person_identity(seat.user)
                names.add(name)
                use = seat_usage.use_between(make_seat_id(plan, index), month.start, month.end)
                if use.calls or use.unpriced:
                    busy.add(name)
        seated.append(names)
    for pair, names in zip(plans, seated, strict=True):
        if names and busy.isdisjoint(names):
            yield pair


async def _count_calls_without_seat(
    ledger: VisibleLedger, coverage: SeatCoverageRule, view: SavedView, month: CalendarMonth
) -> int:
    queries = [
        narrow_query(
            CostQuery(
                since=datetime.fromtimestamp(start, UTC),
                until=datetime.fromtimestamp(end, UTC),
                granularity=TOTAL,
                measures=("errors", "cached"),
                include={NAME: NOT_COVERED},
                derived={NAME: coverage.seat_dimension(start)},
            ),
            include=view.include,
            exclude=view.exclude,
        )
        for start, end in coverage.split_into_spans((month.start, month.end))
    ]
    answers = await ledger.costs_of_queries(queries)
    return sum(row.calls - row.errors - row.cached for rows in answers for row in rows)
