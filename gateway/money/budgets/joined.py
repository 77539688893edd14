"""
Budgets whose sums one query can return, because their views differ only in one value of one dimension. Pure.

An example are a hundred budgets of one team each, all with an amount for each user.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.money.budgets.declared import SpendBudget
from spool.ledger.dimensions import PLAN_TYPES
from spool.ledger.sums import OTHER
from spool.ledger.work import UNITS
from spool.people import SECOND_NAME, USER, is_address_hash
from spool.registry.views import SavedView

# maximum rows of a query for several budgets, estimated from the rows that these budgets had last
MOST_ROWS = 10_000
MOST_VALUES = 200  # maximum values of a dimension in one query
# a person has several names, so a filter for one of these dimensions also matches groups under other names
_OF_PEOPLE = frozenset({USER, SECOND_NAME})

BudgetOfView = tuple[SpendBudget, SavedView]
_Key = tuple[object, ...]


@dataclass(slots=True)
class JoinedBudgets:
    """
    Budgets that one query can answer, by their value of `dimension`. `example` is one of the budgets. `rows`
    is the expected size of the result.
    """

    dimension: str
    example: BudgetOfView
    by_value: dict[str, list[SpendBudget]] = field(default_factory=dict)
    rows: int = 0

    def add_budget(self, value: str, budget: SpendBudget, rows: int) -> None:
        self.by_value.setdefault(value, []).append(budget)
        self.rows += rows


def group_budgets_by_query(
    budgets: Sequence[BudgetOfView],
    row_counts: Mapping[str, int],
    builtin_and_tag_dimensions: Collection[str],
) -> Iterator[JoinedBudgets]:
    """
    Yield groups of budgets, each of which one query can answer.

    `row_counts` is the number of rows that each budget had last. A budget without a size is left out, because the
    rows of a query must stay bounded. `builtin_and_tag_dimensions` are the dimensions that are not derived from others.
    """
    keys = {
        budget.id: _similarity_keys_by_dimension(budget, view, builtin_and_tag_dimensions)
        for budget, view in budgets
        if budget.id in row_counts and not budget.cost_type_mask and budget.cost_type not in PLAN_TYPES
    }
    count = Counter(key for of_budget in keys.values() for key in of_budget.values())
    found = defaultdict[_Key, list[JoinedBudgets]](list)
    for budget, view in budgets:
        of_budget = keys.get(budget.id)
        if not of_budget:
            continue
        dimension = max(of_budget, key=lambda name: (count[of_budget[name]], name))
        groups, size = found[of_budget[dimension]], row_counts[budget.id] + 1
        last = groups[-1] if groups else None
        if last is None or last.rows + size > MOST_ROWS or len(last.by_value) == MOST_VALUES:
            groups.append(JoinedBudgets(dimension, example=(budget, view)))
        [value] = view.include[dimension]
        groups[-1].add_budget(value, budget, size)
    for groups in found.values():
        yield from (group for group in groups if len(group.by_value) > 1)


def _similarity_keys_by_dimension(
    budget: SpendBudget, view: SavedView, builtin_and_tag_dimensions: Collection[str]
) -> dict[str, _Key]:
    """
    Return a key for each dimension of the budget's filter. Budgets with an equal key differ only in that
    dimension's filter value.
    """
    of_budget = (budget.measure, budget.currency, budget.time_zone, budget.granularity, budget.per)
    return {
        name: (name, *of_budget, _freeze_filter(view.include, without=name), _freeze_filter(view.exclude))
        for name, values in view.include.items()
        if name in builtin_and_tag_dimensions
        and name != budget.per
        and len(values) == 1
        and _is_filter_for_one_group(name, *values)
    }


def _is_filter_for_one_group(dimension_name: str, filter_value: str) -> bool:
    if dimension_name in UNITS or dimension_name in _OF_PEOPLE or filter_value in ("", OTHER):
        return False
    return not (is_address_hash(filter_value.strip().lower()) or "@" in filter_value)


def _freeze_filter(
    filter: Mapping[str, Collection[str]], without: str = ""
) -> frozenset[tuple[str, frozenset[str]]]:
    return frozenset((name, frozenset(values)) for name, values in filter.items() if name != without)
