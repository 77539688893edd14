"""Comparison of the elements of a time range under two definitions. Totals never change. Pure."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.money.allocation.definition import AllocationDefinition, Dimension
from gateway.money.allocation.evaluation import DimensionEvaluator, build_dimension_evaluators
from spool import money
from spool.ledger.queries import CostRow
from spool.ledger.sums import OTHER
from spool.people import People

NEW, CHANGED, UNCHANGED, GONE = "new", "changed", "unchanged", "gone"


@dataclass(slots=True)
class AllocationElementSpend:
    """The cost of an element in units of money, and the number of its calls."""

    cost: int = 0
    calls: int = 0

    def add_row(self, row: CostRow) -> None:
        self.cost += money.text_to_units(row.cost)
        self.calls += row.calls


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementDifference:
    """
    The spend of one element under both definitions. `element` is "" for calls without an element. If a
    definition lacks the dimension, its spend is None.
    """

    element: str
    before: AllocationElementSpend | None
    after: AllocationElementSpend | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionDifference:
    """
    The elements of one dimension. If there are too many, the cheapest elements are joined as OTHER.
    `element_count` is the number before joining.
    """

    dimension: Dimension
    elements: Sequence[ElementDifference]
    element_count: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    total: AllocationElementSpend
    dimensions: Sequence[DimensionDifference]


def sources_read_by(*definitions: AllocationDefinition) -> Sequence[str]:
    """
    Return the dimensions of the totals that the definitions read. Rows for `compare_definitions` must be grouped
    by these dimensions.
    """
    return tuple(
        dict.fromkeys(
            name
            for definition in definitions
            for decision in build_dimension_evaluators(definition)
            for name in decision.sources
        )
    )


def compare_definitions(
    before: AllocationDefinition,
    after: AllocationDefinition,
    sources: Sequence[str],
    rows: Sequence[CostRow],
    *,
    people: People | None = None,
    max_elements: int = sys.maxsize,
    check: Callable[[], None] = lambda: None,
) -> Difference:
    """
    Compare the two definitions over the rows, which are grouped by `sources`.

    Dimensions have the order of the new definition. Deleted dimensions are last. Elements are sorted by cost,
    the highest first, with at most `max_elements` elements per dimension. `check` is called between dimensions and
    may raise to stop the work.
    """
    old_decisions = {
        decision.dimension.id: decision for decision in build_dimension_evaluators(before, people)
    }
    new_decisions = {
        decision.dimension.id: decision for decision in build_dimension_evaluators(after, people)
    }
    total = AllocationElementSpend()
    for row in rows:
        total.add_row(row)
    differences = []
    for id in (*new_decisions, *(id for id in old_decisions if id not in new_decisions)):
        check()
        old = _spend_by_allocation_element(old_decisions.get(id), sources, rows)
        new = _spend_by_allocation_element(new_decisions.get(id), sources, rows)
        elements = [
            ElementDifference(
                element=element, before=_spend_or_none(old, element), after=_spend_or_none(new, element)
            )
            for element in {**(new or {}), **(old or {}), **({} if rows else {"": AllocationElementSpend()})}
        ]
        elements.sort(key=lambda item: (-_larger_cost(item), item.element))
        dimension = (new_decisions.get(id) or old_decisions[id]).dimension
        count = len(elements)
        state = _change_kind(elements)
        if count > max_elements:
            elements[max_elements - 1 :] = [_join_elements(elements[max_elements - 1 :])]
        differences.append(
            DimensionDifference(dimension=dimension, elements=elements, element_count=count, state=state)
        )
    return Difference(total=total, dimensions=differences)


def _spend_by_allocation_element(
    decision: DimensionEvaluator | None, sources: Sequence[str], rows: Sequence[CostRow]
) -> Mapping[str, AllocationElementSpend] | None:
    if decision is None:
        return None
    places = [sources.index(name) for name in decision.sources]
    sums: dict[str, AllocationElementSpend] = defaultdict(AllocationElementSpend)
    for row in rows:
        sums[decision.element_of_values(tuple(row.group[index] or "" for index in places))].add_row(row)
    return dict(sums)


def _spend_or_none(
    sums: Mapping[str, AllocationElementSpend] | None, element: str
) -> AllocationElementSpend | None:
    return None if sums is None else sums.get(element, AllocationElementSpend())


def _change_kind(elements: Sequence[ElementDifference]) -> str:
    if any(element.before is None for element in elements):
        return NEW
    if any(element.after is None for element in elements):
        return GONE
    return CHANGED if any(element.before != element.after for element in elements) else UNCHANGED


def _join_elements(elements: Sequence[ElementDifference]) -> ElementDifference:
    return ElementDifference(
        element=OTHER,
        before=_sum_spends([element.before for element in elements]),
        after=_sum_spends([element.after for element in elements]),
    )


def _sum_spends(spends: Sequence[AllocationElementSpend | None]) -> AllocationElementSpend | None:
    """Sum the spends. If the definition lacks the dimension, all spends are None, so return None."""
    known_spends = [spend for spend in spends if spend is not None]
    if not known_spends:
        return None
    return AllocationElementSpend(
        cost=sum(spend.cost for spend in known_spends), calls=sum(spend.calls for spend in known_spends)
    )


def _larger_cost(element: ElementDifference) -> int:
    return max(spend.cost for spend in (element.before, element.after) if spend is not None)
