"""
Which views, budgets, insights and recommendations a person sees: those that are surely about calls of the
slice alone.

What is not visible is answered as if it were not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.api.views import check_usable, unknown_view, view_of
from gateway.api.visible import Visible
from gateway.operator.requests import OperatorRequest
from spool.errors import NotThere
from spool.ledger.derived import Derived
from spool.registry.budgets import SpendBudget
from spool.registry.insights import Insight
from spool.registry.recommendations import Recommendation
from spool.registry.views import View, dimensions


async def visible_to(request: OperatorRequest[Any, Any]) -> Visible:
    ledger = request.ledger
    contains = await ledger.contained()
    return Visible(
        ledger.is_whole, contains, lambda id: request.registry.views.find(id), limits=ledger.limits
    )


async def named_dimensions(request: OperatorRequest[Any, Any]) -> Sequence[Derived]:
    """
    The dimensions of the organization that the person is shown, beside the built-in ones.

    Who may see some calls alone is shown those that his roles and the views that he sees name: definitions
    are closed.
    """
    derived = request.whole_ledger.derived()
    if not request.is_limited or not derived:
        return derived
    visible = await visible_to(request)
    views = [view for view in request.registry.views.all() if visible.view(view)]
    named = {*request.ledger.limits, *(name for view in views for name in dimensions(view))}
    return [each for each in derived if each.name in named]


async def known_dimensions(request: OperatorRequest[Any, Any]) -> Sequence[str]:
    """
    Return the dimensions that a person may group and filter by, to be named when another one is asked for.
    """
    return (*request.ledger.own_dimensions(), *(each.name for each in await named_dimensions(request)))


def usable_view_of(request: OperatorRequest[Any, Any], visible: Visible, word: str) -> View:
    """The view that a question names. Refusal 400 for one that is unknown, not visible or broken."""
    try:
        view = view_of(request.registry.views.find_any, visible, word)
    except NotThere as error:
        raise unknown_view(error) from None
    return check_usable(request.whole_ledger.dimensions(), view)


def budget_of(request: OperatorRequest[Any, Any], visible: Visible, id: str) -> SpendBudget:
    """NotThere if there is none that the person sees."""
    budget = request.registry.budgets.get(id)
    if not visible.budget(budget):
        raise NotThere("there is no budget with this id")
    return budget


async def insight_of(request: OperatorRequest[Any, Any], visible: Visible, id: str) -> Insight:
    """NotThere if there is none that the person sees."""
    insight = await request.registry.insights.get(id)
    if not visible.insight(insight):
        raise NotThere("there is no insight with this id")
    return insight


async def recommendation_of(request: OperatorRequest[Any, Any], visible: Visible, id: str) -> Recommendation:
    """NotThere if there is none that the person sees."""
    found = await request.registry.recommendations.get(id)
    if not visible.recommendation(found):
        raise NotThere("there is no recommendation with this id")
    return found
