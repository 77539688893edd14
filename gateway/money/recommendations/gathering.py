"""
Reading of the facts for types of recommendations: thirty days of totals, with a limited number of sums per day.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from gateway.bills.plans.declared import PlanTable
from gateway.intake.prices import PriceBook
from gateway.money.insights.gathering import recent_calls
from gateway.money.recommendations.facts import (
    DAY_S,
    DAYS,
    DailyUse,
    ProgramAndModel,
    RecentCall,
    SavingFacts,
    UnusedSeat,
    dimension_value,
)
from spool import money
from spool.ledger.counting import stored_dimensions
from spool.ledger.days.usage import DaySum
from spool.ledger.dimensions import TAG
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import Dimensions, DimensionValues, HourlySums
from spool.ledger.token_sums import TokenSum
from spool.log.protocols import RecordLog
from spool.people import filter_values_of_dimension
from spool.record import NS, Inference
from spool.registry.registry import Registry
from spool.registry.views import EXCLUDES

RECENT_DAYS = 7
# dimensions from which the fields of the class Work are read
_WORK = ("source", "provider", "model", "team", f"{TAG}service")
# Maximum sums read per day, the most expensive first. The other sums lead to no recommendation.
MOST_A_DAY = 2_000

DimensionsTest = Callable[[Dimensions], bool]


@dataclass(frozen=True, kw_only=True)
class Sources:
    ledger: Ledger
    log: RecordLog
    prices: Callable[[], PriceBook]
    registry: Registry | None = None  # registry from which plans are read; None means without plans


async def gather_saving_facts(
    sources: Sources, *, now: float, chosen: DimensionsTest = lambda _: True
) -> tuple[SavingFacts, PriceBook]:
    """
    Return the facts of the last thirty days for the chosen uses, and the price book with which they are priced.
    """
    await sources.ledger.require_complete_totals(sources.log)
    book = await asyncio.to_thread(sources.prices)
    today = int(now) // DAY_S * DAY_S
    uses: list[DailyUse] = []
    known: dict[Dimensions, Dimensions] = {}
    for day in range(today - (DAYS - 1) * DAY_S, today + DAY_S, DAY_S):
        sums = await sources.ledger.sums_of_day(day, max_sums=MOST_A_DAY)
        uses += await asyncio.to_thread(_chosen_uses, sums, chosen, known, book)
    calls = await recent_calls(sources.log, now - RECENT_DAYS * DAY_S)
    seats, seats_cost = await _unused_seats_and_cost_of_all(sources, now)
    facts = SavingFacts(
        now=now,
        uses=uses,
        hours=await _calls_by_work_and_hour(sources.ledger, now),
        recent=await asyncio.to_thread(_match_calls_to_uses, calls, uses, sources.ledger.stored_tags),
        estimate=sum_estimator(book),
        estimate_call=call_estimator(book),
        newer=book.newer_models,
        seats=[seat for seat in seats if chosen(_seat_dimensions(seat))],
        seats_cost=seats_cost,
    )
    return facts, book


async def _unused_seats_and_cost_of_all(sources: Sources, now: float) -> tuple[Sequence[UnusedSeat], int]:
    if sources.registry is None or not sources.registry.declared_table(PlanTable).all():
        return (), 0
    # imported here, because only installations with plans need this module
    from gateway.money.recommendations.seats import unused_seats

    return await unused_seats(sources.ledger, sources.registry, now)


def _seat_dimensions(seat: UnusedSeat) -> Dimensions:
    known = {"user": seat.person, "team": seat.team}
    return Dimensions._make(known.get(name, "") for name in Dimensions._fields)


def _chosen_uses(
    sums: Sequence[DaySum],
    chosen: DimensionsTest,
    interned_dimensions: dict[Dimensions, Dimensions],
    price_book: PriceBook,
) -> list[DailyUse]:
    return priced_uses(
        [day_sum for day_sum in sums if chosen(day_sum.dimensions)], interned_dimensions, price_book
    )


def priced_uses(
    sums: Sequence[DaySum], interned_dimensions: dict[Dimensions, Dimensions], price_book: PriceBook
) -> list[DailyUse]:
    estimate = sum_estimator(price_book)
    return [
        DailyUse(
            day=day_sum.day,
            # Equal dimensions of different days share one object, to save memory.
            dimensions=interned_dimensions.setdefault(day_sum.dimensions, day_sum.dimensions),
            tokens=day_sum.tokens,
            cost=day_sum.cost,
            estimate=estimate(day_sum.tokens),
        )
        for day_sum in sums
    ]


async def _calls_by_work_and_hour(ledger: Ledger, now: float) -> dict[ProgramAndModel, dict[int, int]]:
    midnight = datetime.fromtimestamp(now // DAY_S * DAY_S, UTC)
    known = ledger.builtin_and_tag_dimensions()
    query = CostQuery(
        since=await ledger.earliest_moment_with_hourly_sums(midnight - timedelta(days=RECENT_DAYS)),
        until=midnight,
        granularity="hourly",
        group_by=[name for name in _WORK if name in known],
        include={"user": ("",)},
        measures=("calls",),
    )
    return await asyncio.to_thread(_group_by_work, query.group_by, await ledger.costs(query))


def _group_by_work(
    dimensions: Sequence[str], rows: Sequence[CostRow]
) -> dict[ProgramAndModel, dict[int, int]]:
    calls_by_work: dict[ProgramAndModel, dict[int, int]] = defaultdict(dict)
    for row in rows:
        values = dict(zip(dimensions, row.group, strict=True))
        work = ProgramAndModel(*(values.get(name) or "" for name in _WORK))
        calls_by_work[work][int(row.start.timestamp())] = row.calls
    return calls_by_work


def _match_calls_to_uses(
    calls: Sequence[Inference], uses: Sequence[DailyUse], tags: Sequence[str]
) -> list[RecentCall]:
    places: dict[tuple[int, DimensionValues], int] = {
        (use.day, use.dimensions): index for index, use in enumerate(uses)
    }
    sums = HourlySums(tags)
    placed = []
    for call in calls:
        day = (call.start_time or 0) // (DAY_S * NS) * DAY_S
        index = places.get((day, stored_dimensions(sums.call_dimensions(call))))
        if index is not None:
            cost = money.text_to_units(call.cost or call.estimated_cost or "0")
            placed.append(RecentCall(call=call, use_index=index, cost=cost))
    return sorted(placed, key=lambda recent_call: recent_call.call.start_time or 0)


def sum_estimator(price_book: PriceBook) -> Callable[[TokenSum], int | None]:
    def estimate_sum_cost(total: TokenSum) -> int | None:
        # without a price for this tier, the cost is unknown: the standard price would look like a saving
        return (
            None
            if price_book.is_service_tier_priced_as_standard(total)
            else _units_or_none(price_book.estimate_sum(total))
        )

    return estimate_sum_cost


def call_estimator(price_book: PriceBook) -> Callable[[Inference], int | None]:
    def estimate_call_cost(call: Inference) -> int | None:
        return _units_or_none(price_book.estimate_record(call))

    return estimate_call_cost


def _units_or_none(amount: str | None) -> int | None:
    return None if amount is None else money.text_to_units(amount)


def _has_one_of_values(dimensions: Dimensions, name: str, values: Sequence[str]) -> bool:
    return any(
        value in values for value in filter_values_of_dimension(name, partial(dimension_value, dimensions))
    )


def filter_predicate(filters: Mapping[str, Sequence[str]]) -> DimensionsTest:
    """
    Return a predicate that tests dimensions against a filter in the form of a view's filter. "" is
    the unknown value.
    """

    def is_chosen_by_filters(dimensions: Dimensions) -> bool:
        return all(
            _has_one_of_values(dimensions, name.removeprefix(EXCLUDES), values) != name.startswith(EXCLUDES)
            for name, values in filters.items()
        )

    return is_chosen_by_filters
