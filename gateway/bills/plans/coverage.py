"""
Coverage of calls by seats, as a dimension of ledger queries, and a ledger that is split into covered calls
and metered calls. Fees of seats may be added to the metered calls.

Seats are matched with calls when costs are queried, so a plan may begin in the past.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain, pairwise
from operator import itemgetter
from typing import Protocol

from gateway.bills.plans.declared import AssistantPlan, PlanTable, Seat
from spool import money
from spool.ledger.costs import combine_rows, periods_of_query
from spool.ledger.dimensions import COVERED_COST, PLAN, TOTAL, DerivedDimension, Group, WantedValues
from spool.ledger.queries import CostQuery, CostRow, narrow_query
from spool.people import SECOND_NAME, USER, People, filter_values_of_dimension
from spool.registry.registry import Registry
from spool.registry.views import SavedView, view_dimensions
from spool.statements import day_text, parse_day
from spool.turns.threads import sort_in_short_steps

# name of the internal dimension for seats; no list of dimensions contains it, so users cannot query it
NAME = "(seat)"
_MEMO = 5_000
_Held = tuple[int, str, SavedView]  # a held seat: position of its plan, id of the seat, view of the plan
_PLACE = itemgetter(0)
NOT_COVERED = ("",)
# plan dimension of billed rows, which belong to no plan: only fees do
_NO_PLAN = DerivedDimension(name=PLAN, label="", sources=(), value=lambda _: "")
_Place = tuple[datetime, Group]


def is_seat_held(seat: Seat, day: str) -> bool:
    return seat.since <= day and (not seat.until or day < seat.until)


def make_seat_id(plan: AssistantPlan, seat_index: int) -> str:
    """Return a seat's id: the plan id and the seat's position. It is the value of the seat dimension."""
    return f"{plan.id}:{seat_index}"


def split_seat_id(seat_id: str) -> tuple[str, int]:
    plan_id, _, index_text = seat_id.rpartition(":")
    return plan_id, int(index_text)


def usable_plans(registry: Registry, dimensions: Sequence[str]) -> list[tuple[AssistantPlan, SavedView]]:
    """
    Return plans with their views, in order of precedence. Seats and views name people as records do. A plan
    with a broken view, or a view of units of work, covers nothing and is omitted.
    """
    views = [
        (plan, registry.views.find(plan.view_id)) for plan in registry.declared_table(PlanTable).in_order()
    ]
    as_recorded, matched = registry.declared_table(PlanTable).with_hashed_users, registry.views.expand_names
    return [
        (as_recorded(plan), matched(view))
        for plan, view in views
        if view is not None and not view.unit_of_work and not view.broken_reason(dimensions)
    ]


class SeatCoverageRule:
    """
    The rule that decides which seat covers a call.

    Plans are tried in order of precedence. The first plan applies if its view matches the call and the user
    has a seat in it on the day of the call (UTC).
    """

    def __init__(
        self, plans: Sequence[tuple[AssistantPlan, SavedView]], ledger: VisibleLedger, people: People
    ) -> None:
        self._plans = plans
        self._people = people
        self._lasting = ledger.cached_dimension
        self._derived = {dimension.name: dimension for dimension in ledger.derived_dimensions()}
        sources = {USER, SECOND_NAME}
        for _, view in plans:
            for name in view_dimensions(view):
                sources.update(self._dimension_or_those_it_derives_from(name))
        self._sources = tuple(sorted(sources))
        self._places = {name: index for index, name in enumerate(self._sources)}

    def split_into_spans(self, edges: Sequence[int]) -> Iterator[tuple[int, int]]:
        """
        Split the time between the first and the last edge into spans, at each edge and whenever a seat begins
        or ends.
        """
        days: set[str] = set()
        for plan, _ in self._plans:
            days.update(seat.since for seat in plan.seats)
            days.update(seat.until for seat in plan.seats)
        cuts = set(edges)
        for day in days - {""}:
            at = parse_day(day)
            if edges[0] < at < edges[-1]:
                cuts.add(at)
        yield from pairwise(sorted(cuts))

    def seat_dimension(self, span_start: int) -> DerivedDimension:
        """
        Return the dimension for a span that begins at `span_start`. Its value is the seat id, or "" if no plan covers
        the call.
        """
        day = day_text(span_start)
        marks = [
            make_seat_id(plan, seat_index)
            for plan, _ in self._plans
            for seat_index, seat in enumerate(plan.seats)
            if is_seat_held(seat, day)
        ]
        return self._lasting(
            (NAME, marks, self._plans, self._derived), partial(self._define_seat_dimension, day)
        )

    def _define_seat_dimension(self, day: str) -> DerivedDimension:
        held = self._seats_by_user(day)
        # If nobody has a seat, any dimension gives the same result. The provider has few values, so the query
        # reads few sums.
        if not held:
            return DerivedDimension(name=NAME, label="", sources=("provider",), value=lambda _: "")

        @lru_cache(_MEMO)  # cached, because many calls have the same dimension values
        def seat_id_of_call(values: tuple[str, ...]) -> str:
            value_of = partial(self._dimension_value, values)
            names = map(self._people.person_identity, filter_values_of_dimension(USER, value_of))
            seats = chain.from_iterable(held.get(name, ()) for name in dict.fromkeys(names))
            marks = (mark for _, mark, view in sorted(seats, key=_PLACE) if view.has_call(value_of))
            return next(marks, "")

        return DerivedDimension(name=NAME, label="", sources=self._sources, value=seat_id_of_call)

    def _seats_by_user(self, day: str) -> Mapping[str, Sequence[_Held]]:
        held: dict[str, list[_Held]] = defaultdict(list)
        for place, (plan, view) in enumerate(self._plans):
            for seat_index, seat in enumerate(plan.seats):
                if is_seat_held(seat, day):
                    mark = make_seat_id(plan, seat_index)
                    # plans are in order of precedence, so the seat of the first plan is first
                    held[self._people.person_identity(seat.user)].append((place, mark, view))
        return held

    def _dimension_value(self, values: tuple[str, ...], name: str) -> str:
        derived = self._derived.get(name)
        if derived is None:
            return values[self._places[name]]
        sources = [values[self._places[source]] for source in derived.sources]
        return derived.value(tuple(sources))

    def _dimension_or_those_it_derives_from(self, name: str) -> Sequence[str]:
        derived = self._derived.get(name)
        return (name,) if derived is None else derived.sources


class VisibleLedger(Protocol):
    """A ledger that answers cost queries, for all calls or for those that a person may see."""

    async def costs_of_queries(self, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]: ...

    def derived_dimensions(self) -> Sequence[DerivedDimension]: ...

    def cached_dimension(
        self, depends_on: object, define: Callable[[], DerivedDimension]
    ) -> DerivedDimension: ...

    def dimensions(self) -> Sequence[str]: ...


class ChargeRowSource(Protocol):
    """A source of amounts that belong to no call. It returns them as rows of a query."""

    async def charge_rows(self, query: CostQuery) -> Sequence[CostRow]: ...


class LedgerLimitedByCoverage:
    """
    A ledger limited to the calls that no plan covers, or to the covered calls. The amounts of `charges` are
    added.
    """

    def __init__(
        self,
        ledger: VisibleLedger,
        coverage: SeatCoverageRule,
        cost_type: str,
        charges: Sequence[ChargeRowSource] = (),
    ) -> None:
        self._ledger = ledger
        self._coverage = coverage
        self._side = "exclude" if cost_type == COVERED_COST else "include"
        self._charges = charges

    async def costs(self, query: CostQuery) -> Sequence[CostRow]:
        """
        Return costs as `Ledger.costs` does. The period is queried in parts, because seats change at midnight (UTC).
        """
        if query.top is not None:
            query = replace(query, top=None, kept=await self._largest_groups(query, query.top))
        # runs in a thread, because it is slow with thousands of seats
        parts = await asyncio.to_thread(self._queries_by_span, query)
        row_sets = [*await self._ledger.costs_of_queries(parts)]
        row_sets += [await charges.charge_rows(query) for charges in self._charges]
        return await asyncio.to_thread(_merge_parts, query, row_sets)

    def _queries_by_span(self, query: CostQuery) -> Sequence[CostQuery]:
        since, until = int(query.since.timestamp()), int(query.until.timestamp())
        sides: dict[str, WantedValues] = {"include": {}, "exclude": {}}
        sides[self._side] = {NAME: NOT_COVERED}
        divided = narrow_query(query, **sides)
        parts = []
        for start, end in self._coverage.split_into_spans((since, until)):
            seat = self._coverage.seat_dimension(start)
            part = replace(
                divided,
                since=datetime.fromtimestamp(start, query.zone),
                until=datetime.fromtimestamp(end, query.zone),
                derived={**query.derived, NAME: seat, PLAN: _NO_PLAN},
            )
            parts.append(part)
        return parts

    async def _largest_groups(self, query: CostQuery, top: int) -> frozenset[Group]:
        total_query = replace(query, top=None, granularity=TOTAL, measures=(query.top_by,), meter="")
        rows = await self.costs(total_query)
        groups = await asyncio.to_thread(_largest_row_groups, rows, query.top_by, top)
        unknown = (None,) * len(query.group_by)
        return frozenset([unknown, *groups])


def _largest_row_groups(rows: Sequence[CostRow], name: str, top: int) -> list[Group]:
    by_name = sort_in_short_steps(rows, lambda row: _group_texts(row.group))
    largest = sort_in_short_steps(by_name, lambda row: -_measure_value(row, name))
    return [row.group for row in largest[:top]]


def _merge_parts(query: CostQuery, row_sets: Sequence[Sequence[CostRow]]) -> list[CostRow]:
    starts = [start for start, _ in periods_of_query(query)]
    places: dict[_Place, list[CostRow]] = defaultdict(list)
    for row in chain.from_iterable(row_sets):
        period = bisect_right(starts, row.start) - 1
        places[starts[period], row.group].append(row)
    rows = []
    for key in sort_in_short_steps(places, _start_and_group_sort_key):
        start, group = key
        rows.append(combine_rows(places[key], start=start, group=group))
    return rows


def _measure_value(row: CostRow, name: str) -> int:
    value = getattr(row, name)
    return money.text_to_units(value) if isinstance(value, str) else int(value)


def _start_and_group_sort_key(key: _Place) -> tuple[datetime, list[str]]:
    start, group = key
    return start, _group_texts(group)


def _group_texts(group: Group) -> list[str]:
    return [value or "" for value in group]
