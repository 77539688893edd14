"""
Which views, budgets, insights and recommendations a person may see: only those that certainly cover no hidden
call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.core.errors import Refusal
from spool.ledger.dimensions import WantedValues
from spool.registry.insights import Insight
from spool.registry.recommendations import Recommendation
from spool.registry.views import EXCLUDES, SavedView

# The calls behind an answer. OPERATION: numbers of records of a whole topic or route, but no cost, user or team.
WHOLE, SLICED, NOTHING, OPERATION = "whole", "sliced", "nothing", "operation"


class ViewBoundObject(Protocol):
    """
    An object that belongs to a view. `cost_type_mask` is not 0 if the object includes amounts that belong to no
    call.
    """

    @property
    def view_id(self) -> str: ...

    @property
    def cost_type_mask(self) -> int: ...


@dataclass(frozen=True, slots=True)
class VisibilityRules:
    """
    The rules for what one person may see. `contains` returns whether all calls that pass included and
    excluded values are visible. `limits` are the dimensions that restrict the person.
    """

    is_whole: bool
    contains: Callable[[WantedValues, WantedValues], bool]
    view_of: Callable[[str], SavedView | None]  # function that returns the view with an id
    limits: Sequence[str] = ()

    def can_see_view(self, view: SavedView | None) -> bool:
        return self.is_whole or (view is not None and self.contains(view.include, view.exclude))

    def can_see_budget(self, budget: ViewBoundObject) -> bool:
        """
        Return whether a budget is visible. A budget with amounts that belong to no call needs access to all
        calls.
        """
        if budget.cost_type_mask:
            return self.is_whole
        return self.can_see_view_id(budget.view_id)

    def can_see_view_id(self, view_id: str) -> bool:
        return self.can_see_view(self.view_of(view_id))

    def can_see_insight(self, insight: Insight) -> bool:
        """
        Return whether an insight is visible. An insight that a person wrote does not name its calls, so it
        needs access to all calls.
        """
        about = insight.decoded_concerns
        return self.is_whole or (about is not None and self.contains(about.include, about.exclude))

    def can_see_recommendation(self, recommendation: Recommendation) -> bool:
        about = recommendation.saving.concerns
        return self.is_whole or (
            bool(about) and self.contains({name: (value,) for name, value in about.items()}, {})
        )

    def can_see_realized_saving(self, recommendation: Recommendation) -> bool:
        """
        Return whether the measured saving of a recommendation is visible. It includes the calls of all
        models.
        """
        about = recommendation.saving.measured_by
        return self.is_whole or self.contains({name: (value,) for name, value in about.items()}, {})

    def check_filter(self, filter: Mapping[str, Sequence[str | None]]) -> None:
        texts = {name: tuple(value or "" for value in values) for name, values in filter.items()}
        include = {name: values for name, values in texts.items() if not name.startswith(EXCLUDES)}
        exclude = {
            name.removeprefix(EXCLUDES): values for name, values in texts.items() if name not in include
        }
        if not self.contains(include, exclude):
            limits = ", ".join(self.limits) or "no dimension, because you see no calls"
            raise Refusal(
                403,
                "limited_data",
                f"the filter matches calls that you may not see; restrict it to your values of: {limits}",
            )


EVERYTHING = VisibilityRules(True, lambda include, exclude: True, lambda id: None)


def check_view_usable(dimensions: Collection[str], view: SavedView) -> SavedView:
    """Return the view. Raises Refusal 400 if a dimension of it no longer exists."""
    reason = view.broken_reason(dimensions)
    if reason:
        raise Refusal(400, "invalid_parameter", f"the view {view.name} is broken: {reason}")
    return view
