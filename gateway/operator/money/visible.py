"""
Which views, budgets, insights and recommendations a person sees: those that are surely about calls of the slice alone.

What is not visible is answered as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.api.views import check_usable, unknown_view
from gateway.errors import Refusal
from gateway.operator.requests import OperatorRequest
from spool.errors import NotThere
from spool.ledger.derived import Derived
from spool.ledger.queries import Wanted
from spool.registry.budgets import SpendBudget
from spool.registry.insights import Insight
from spool.registry.recommendations import Recommendation
from spool.registry.views import EXCLUDES, View, dimensions


@dataclass(frozen=True, slots=True)
class Visible:
    """`contains`: whether the slice has everything that passes a filter, by what it includes and excludes."""

    is_whole: bool
    contains: Callable[[Wanted, Wanted], bool]
    view_of: Callable[[str], View | None]  # by its id

    def view(self, view: View | None) -> bool:
        return self.is_whole or (view is not None and self.contains(view.include, view.exclude))

    def budget(self, budget: SpendBudget) -> bool:
        return self.view(self.view_of(budget.view_id))

    def insight(self, insight: Insight) -> bool:
        """One that a person wrote does not say what calls it is about."""
        about = insight.concerned
        return self.is_whole or (about is not None and self.contains(about.include, about.exclude))

    def recommendation(self, each: Recommendation) -> bool:
        about = each.saving.concerns
        return self.is_whole or (bool(about) and self.contains({name: (value,) for name, value in about.items()}, {}))

    def realized(self, each: Recommendation) -> bool:
        """Whether that may be shown which an addressed one has saved: it is measured on work with any model."""
        about = each.saving.measured_by
        return self.is_whole or self.contains({name: (value,) for name, value in about.items()}, {})


async def visible_to(request: OperatorRequest[Any]) -> Visible:
    ledger = request.ledger
    return Visible(ledger.is_whole, await ledger.contained(), lambda id: request.registry.views.find(id))


async def named_dimensions(request: OperatorRequest[Any]) -> Sequence[Derived]:
    """
    The dimensions of the organization that the person is shown, beside the built-in ones.

    Who may see some calls alone is shown those that his roles and the views that he sees name: definitions are closed.
    """
    derived = request.services.ledger.derived()
    if not request.is_limited or not derived:
        return derived
    visible = await visible_to(request)
    views = [view for view in request.registry.views.all() if visible.view(view)]
    named = {*request.ledger.limits, *(name for view in views for name in dimensions(view))}
    return [each for each in derived if each.name in named]


async def known_dimensions(request: OperatorRequest[Any]) -> Sequence[str]:
    """What the person may group and filter by, and is told when a name is none of these."""
    return (*request.ledger.own_dimensions(), *(each.name for each in await named_dimensions(request)))


def usable_view_of(request: OperatorRequest[Any], visible: Visible, word: str) -> View:
    """The view that a question names. Refusal 400 for one that is unknown, not visible or broken."""
    try:
        view = view_of(request, visible, word)
    except NotThere as error:
        raise unknown_view(error) from None
    return check_usable(request.services, view)


def view_of(request: OperatorRequest[Any], visible: Visible, word: str) -> View:
    """The view of an id or a name. NotThere if there is none that the person sees."""
    view = request.registry.views.find_any(word)
    if not visible.view(view):
        raise NotThere("there is no view with this id or name")
    return view


def check_visible(request: OperatorRequest[Any], visible: Visible, filter: Mapping[str, Sequence[str | None]]) -> None:
    """Refusal 403 for the filter of a view that is not surely within what the person may see."""
    given = {name: tuple(value or "" for value in values) for name, values in filter.items()}
    include = {name: values for name, values in given.items() if not name.startswith(EXCLUDES)}
    exclude = {name.removeprefix(EXCLUDES): values for name, values in given.items() if name not in include}
    if not visible.contains(include, exclude):
        limits = ", ".join(request.ledger.limits) or "no calls at all"
        raise Refusal(
            403,
            "limited_data",
            f"the filter passes calls that you may not see; let it name values of these that you see: {limits}",
        )


def budget_of(request: OperatorRequest[Any], visible: Visible, id: str) -> SpendBudget:
    """NotThere if there is none that the person sees."""
    budget = request.registry.budgets.get(id)
    if not visible.budget(budget):
        raise NotThere("there is no budget with this id")
    return budget


async def insight_of(request: OperatorRequest[Any], visible: Visible, id: str) -> Insight:
    """NotThere if there is none that the person sees."""
    insight = await request.registry.insights.get(id)
    if not visible.insight(insight):
        raise NotThere("there is no insight with this id")
    return insight


async def recommendation_of(request: OperatorRequest[Any], visible: Visible, id: str) -> Recommendation:
    """NotThere if there is none that the person sees."""
    found = await request.registry.recommendations.get(id)
    if not visible.recommendation(found):
        raise NotThere("there is no recommendation with this id")
    return found
