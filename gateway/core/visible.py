"""
The rules for the views, budgets, insights and recommendations that a person may see.

A person sees an item only if the item certainly covers no call that is hidden from the person.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.core.errors import Refusal
from spool.ledger.queries import Wanted
from spool.registry.insights import Insight
from spool.registry.recommendations import Recommendation
from spool.registry.views import EXCLUDES, View

# The calls behind an answer: all calls, only the calls that the person may see, or no calls.
WHOLE, SLICED, NOTHING = "whole", "sliced", "nothing"


class OfView(Protocol):
    """A budget. `arranged` is not 0 if the budget includes amounts that belong to no call."""

    @property
    def view_id(self) -> str: ...

    @property
    def arranged(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Visible:
    """
    The calls that a person may see.

    `contains` returns whether all calls that pass a filter (included and excluded values) are visible.
    `limits` are the dimensions that restrict the person.
    """

    is_whole: bool
    contains: Callable[[Wanted, Wanted], bool]
    view_of: Callable[[str], View | None]  # view by its id
    limits: Sequence[str] = ()

    def view(self, view: View | None) -> bool:
        return self.is_whole or (view is not None and self.contains(view.include, view.exclude))

    def budget(self, budget: OfView) -> bool:
        """
        Return whether the person may see a budget.

        If it includes amounts that belong to no call, the person needs access to all calls.
        """
        if budget.arranged:
            return self.is_whole
        return self.named(budget.view_id)

    def named(self, view_id: str) -> bool:
        """Return whether the person may see the view with this id."""
        return self.view(self.view_of(view_id))

    def insight(self, insight: Insight) -> bool:
        """
        Return whether the person may see an insight.

        An insight that a person wrote does not name its calls, so only people with access to all calls
        may see it.
        """
        about = insight.decoded_concerns
        return self.is_whole or (about is not None and self.contains(about.include, about.exclude))

    def recommendation(self, recommendation: Recommendation) -> bool:
        about = recommendation.saving.concerns
        return self.is_whole or (
            bool(about) and self.contains({name: (value,) for name, value in about.items()}, {})
        )

    def realized(self, recommendation: Recommendation) -> bool:
        """
        Return whether the person may see the measured saving of a recommendation. The saving covers the calls
        of all models.
        """
        about = recommendation.saving.measured_by
        return self.is_whole or self.contains({name: (value,) for name, value in about.items()}, {})

    def check_filter(self, filter: Mapping[str, Sequence[str | None]]) -> None:
        """Raise Refusal 403 if the filter of a view may match calls that the person may not see."""
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


EVERYTHING = Visible(True, lambda include, exclude: True, lambda id: None)


def check_usable(dimensions: Collection[str], view: View) -> View:
    """Return the view. Raises Refusal 400 if it is broken."""
    reason = view.broken_reason(dimensions)
    if reason:
        raise Refusal(400, "invalid_parameter", f"the view {view.name} is broken: {reason}")
    return view
