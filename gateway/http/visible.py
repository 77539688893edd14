"""What of views, budgets, insights and recommendations somebody sees: what is surely about calls that may be seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.service.errors import Refusal
from spool.ledger.queries import Wanted
from spool.registry.insights import Insight
from spool.registry.recommendations import Recommendation
from spool.registry.views import EXCLUDES, View

# What a call or a tool shows of the calls to models, and what is made of them: all, what the person may see, or
# nothing.
WHOLE, SLICED, NOTHING = "whole", "sliced", "nothing"


class OfView(Protocol):
    """A budget: `arranged` is not 0 if it has what is of nobody's calls in it."""

    @property
    def view_id(self) -> str: ...

    @property
    def arranged(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Visible:
    """
    `contains`: whether the slice has everything that passes a filter, by what it includes and excludes.

    `limits` are the dimensions whose values bound it.
    """

    is_whole: bool
    contains: Callable[[Wanted, Wanted], bool]
    view_of: Callable[[str], View | None]  # by its id
    limits: Sequence[str] = ()

    def view(self, view: View | None) -> bool:
        return self.is_whole or (view is not None and self.contains(view.include, view.exclude))

    def budget(self, budget: OfView) -> bool:
        """True if the person may see a budget. One of billed money has what is of nobody's calls in it."""
        if budget.arranged:
            return self.is_whole
        return self.named(budget.view_id)

    def named(self, view_id: str) -> bool:
        """True if the person sees the view of an id."""
        return self.view(self.view_of(view_id))

    def insight(self, insight: Insight) -> bool:
        """
        True if the person may see an insight. An insight that a person wrote does not say which calls it concerns.
        """
        about = insight.concerned
        return self.is_whole or (about is not None and self.contains(about.include, about.exclude))

    def recommendation(self, each: Recommendation) -> bool:
        about = each.saving.concerns
        return self.is_whole or (
            bool(about) and self.contains({name: (value,) for name, value in about.items()}, {})
        )

    def realized(self, each: Recommendation) -> bool:
        """
        True if the person may see what an addressed recommendation has saved: it is measured on work
        with any model.
        """
        about = each.saving.measured_by
        return self.is_whole or self.contains({name: (value,) for name, value in about.items()}, {})

    def check_filter(self, filter: Mapping[str, Sequence[str | None]]) -> None:
        """Refusal 403 for the filter of a view that is not surely within what may be seen."""
        given = {name: tuple(value or "" for value in values) for name, values in filter.items()}
        include = {name: values for name, values in given.items() if not name.startswith(EXCLUDES)}
        exclude = {
            name.removeprefix(EXCLUDES): values for name, values in given.items() if name not in include
        }
        if not self.contains(include, exclude):
            limits = ", ".join(self.limits) or "no calls at all"
            raise Refusal(
                403,
                "limited_data",
                "the filter passes calls that you may not see; let it name values of these that you see: "
                f"{limits}",
            )


EVERYTHING = Visible(True, lambda include, exclude: True, lambda id: None)


def check_usable(dimensions: Collection[str], view: View) -> View:
    """The view itself. Refusal 400 for a broken one."""
    reason = view.broken(dimensions)
    if reason:
        raise Refusal(400, "invalid_parameter", f"the view {view.name} is broken: {reason}")
    return view
