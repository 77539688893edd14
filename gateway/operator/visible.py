"""
Which views, budgets, insights and recommendations a person sees: those that are surely about calls of
the slice alone.

What is not visible is answered as if it were not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.api import visible
from gateway.api.views import unknown_view
from gateway.api.visible import visible_in
from gateway.http.visible import Visible, check_usable
from gateway.operator.requests import OperatorRequest
from spool.errors import NotThere
from spool.ledger.derived import Derived
from spool.registry.budgets import SpendBudget
from spool.registry.insights import Insight
from spool.registry.recommendations import Recommendation
from spool.registry.views import View


async def visible_to(request: OperatorRequest[Any, Any]) -> Visible:
    return await visible_in(request.ledger, request.registry)


async def named_dimensions(request: OperatorRequest[Any, Any]) -> Sequence[Derived]:
    """The dimensions of the organization that the person is shown, beside the built-in ones."""
    if not request.is_limited:
        return request.whole_ledger.derived()
    return await visible.named_dimensions(request.ledger, request.registry)


async def known_dimensions(request: OperatorRequest[Any, Any]) -> Sequence[str]:
    """Return the dimensions that a person may group and filter by, to be named when another one is asked for."""
    return (*request.ledger.own_dimensions(), *(each.name for each in await named_dimensions(request)))


def usable_view_of(request: OperatorRequest[Any, Any], sees: Visible, word: str) -> View:
    """The view that a question names. Refusal 400 for one that is unknown, not visible or broken."""
    views = request.registry.views
    try:
        view = views.find_any(word, sees.view)
    except NotThere as error:
        raise unknown_view(error) from None
    return views.matched(check_usable(request.whole_ledger.dimensions(), view))


def budget_of(request: OperatorRequest[Any, Any], sees: Visible, id: str) -> SpendBudget:
    """NotThere if there is none that the person sees."""
    budget = request.registry.budgets.get(id)
    if not sees.budget(budget):
        raise NotThere("there is no budget with this id")
    return budget


async def insight_of(request: OperatorRequest[Any, Any], sees: Visible, id: str) -> Insight:
    """NotThere if there is none that the person sees."""
    insight = await request.registry.insights.get(id)
    if not sees.insight(insight):
        raise NotThere("there is no insight with this id")
    return insight


async def recommendation_of(request: OperatorRequest[Any, Any], sees: Visible, id: str) -> Recommendation:
    """NotThere if there is none that the person sees."""
    found = await request.registry.recommendations.get(id)
    if not sees.recommendation(found):
        raise NotThere("there is no recommendation with this id")
    return found
