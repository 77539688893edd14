"""
Which seat covers a call, as a dimension of a question to the ledger. No sum is kept by seat, so a plan
may begin in the past.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise

from gateway.bills.plans.declared import AssistantPlan, PlanTable, Seat
from spool.ledger.derived import Derived
from spool.people import People
from spool.registry.registry import Registry
from spool.registry.views import View, dimensions
from spool.statements.rules import day_from, day_text

NAME = "(seat)"  # no question of anybody can name it, because it is in no list of dimensions
_MEMO = 10_000
_Held = tuple[str, View]  # the mark of a seat, and the view of its plan


def is_held(seat: Seat, day: str) -> bool:
    """True if somebody has the seat on a day such as 2026-11-20."""
    return seat.since <= day and (not seat.until or day < seat.until)


def seat_mark(plan: AssistantPlan, place: int) -> str:
    """Name a seat by its place in its plan: the value of the dimension."""
    return f"{plan.id}:{place}"


def place_of(mark: str) -> tuple[str, int]:
    """Return the id of a plan and the place of a seat in it."""
    plan_id, _, place = mark.rpartition(":")
    return plan_id, int(place)


def usable_plans(registry: Registry, dimensions: Sequence[str]) -> list[tuple[AssistantPlan, View]]:
    """
    Return the plans in their order with their views. Seats and views name people as records do. A plan
    whose view is broken covers nothing and is left out.
    """
    views = [(plan, registry.views.find(plan.view_id)) for plan in registry.table(PlanTable).in_order()]
    as_recorded, matched = registry.table(PlanTable).as_recorded, registry.views.matched
    return [
        (as_recorded(plan), matched(view))
        for plan, view in views
        if view is not None and not view.broken(dimensions)
    ]


class Coverage:
    """
    A call is covered by the first plan, in their order, whose view holds it and in which its user has a
    seat on its day (UTC).
    """

    def __init__(
        self, plans: Sequence[tuple[AssistantPlan, View]], derived: Sequence[Derived], people: People
    ) -> None:
        self._plans = plans
        self._people = people
        self._derived = {each.name: each for each in derived}
        sources = {"user"}
        for _, view in plans:
            for name in dimensions(view):
                sources.update(self._own(name))
        self._sources = tuple(sorted(sources))
        self._places = {name: place for place, name in enumerate(self._sources)}

    def spans(self, edges: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the spans between the first and the last edge in which the same seats are held, cut at edges."""
        days: set[str] = set()
        for plan, _ in self._plans:
            days.update(seat.since for seat in plan.seats)
            days.update(seat.until for seat in plan.seats)
        cuts = set(edges)
        for day in days - {""}:
            at = day_from(day)
            if edges[0] < at < edges[-1]:
                cuts.add(at)
        yield from pairwise(sorted(cuts))

    def dimension(self, at: int) -> Derived:
        """The dimension of a span that begins at `at`: the mark of the seat, "" for a call that no plan covers."""
        held = self._held(day_text(at))
        if not held:  # known of every call by its provider, which has fewer sums than users have
            return Derived(name=NAME, label="", sources=("provider",), value=lambda _: "")
        user = self._places["user"]

        @lru_cache(_MEMO)  # few of the values differ
        def value(values: tuple[str, ...]) -> str:
            for mark, view in held.get(self._people.identity(values[user]), ()):
                if view.holds(partial(self._value_of, values)):
                    return mark
            return ""

        return Derived(name=NAME, label="", sources=self._sources, value=value)

    def _held(self, day: str) -> Mapping[str, Sequence[_Held]]:
        """Return the seats of a day by user, in the order of their plans."""
        held: dict[str, list[_Held]] = defaultdict(list)
        for plan, view in self._plans:
            for place, seat in enumerate(plan.seats):
                if is_held(seat, day):
                    mark = seat_mark(plan, place)
                    held[self._people.identity(seat.user)].append((mark, view))
        return held

    def _value_of(self, values: tuple[str, ...], name: str) -> str:
        derived = self._derived.get(name)
        if derived is None:
            return values[self._places[name]]
        sources = [values[self._places[source]] for source in derived.sources]
        return derived.value(tuple(sources))

    def _own(self, name: str) -> Sequence[str]:
        """The ledger's own dimensions of which one is made."""
        derived = self._derived.get(name)
        return (name,) if derived is None else derived.sources
