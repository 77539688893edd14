"""The calls of the operator API on budgets: the same values and rules as for keys, and an evaluation by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgspec import UNSET

from gateway.api import budgets
from gateway.api.budget_lists import ALERTS, BUDGETS, OWNERS, alert_rows, alerts_of_now, budget_rows, owner_rows
from gateway.api.budgets import BudgetChanges, NewBudget
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.money.visible import Visible, budget_of, known_dimensions, visible_to
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid
from spool.registry.tables.budgets import NO_VIEW


class BudgetEvaluation(RequestBody):
    """An empty object."""


async def list_budgets(request: OperatorRequest[None]) -> Result:
    visible = await visible_to(request)
    page = await request.list(BUDGETS, budget_rows(request.services, visible.budget))
    return await budgets.with_current(request.services, page)


async def add_budget(request: OperatorRequest[NewBudget]) -> Result:
    _check_view(request, await visible_to(request), request.body.view.id)
    known = await known_dimensions(request)
    return await budgets.create(request.services, request.body, request.actor, known=known)


async def show_budget(request: OperatorRequest[None]) -> Result:
    budget = budget_of(request, await visible_to(request), request.word("id"))
    return await budgets.show(request.services, budget.id, request)


async def edit_budget(request: OperatorRequest[BudgetChanges]) -> Result:
    visible = await visible_to(request)
    id = budget_of(request, visible, request.word("id")).id
    if request.body.view is not UNSET:
        _check_view(request, visible, request.body.view.id)
    known = await known_dimensions(request)
    return await budgets.change(request.services, id, request.body, request.actor, known=known)


async def remove_budget(request: OperatorRequest[None]) -> Result:
    """Delete a budget; `confirm` is its exact name."""
    budget = budget_of(request, await visible_to(request), request.word("id"))
    if request.http.query.get("confirm", "") != budget.name:
        raise Invalid("confirm must be the exact name of the budget")
    return await budgets.delete(request.services, budget.id, request.actor)


async def list_owners(request: OperatorRequest[None]) -> Result:
    id = budget_of(request, await visible_to(request), request.word("id")).id
    return {"budget": {"id": id}, **await request.list(OWNERS, await owner_rows(request.services, id))}


async def list_alerts(request: OperatorRequest[None]) -> Result:
    """Who may see some calls alone sees the alerts of the budget and its view as they are now."""
    budget = budget_of(request, await visible_to(request), request.word("id"))
    if request.is_limited:
        kept = await alerts_of_now(request.services, budget)
    else:
        kept = await request.registry.budgets.alerts(budget.id)
    return {"budget": {"id": budget.id}, **await request.list(ALERTS, alert_rows(kept))}


def _check_view(request: OperatorRequest[Any], visible: Visible, id: str) -> None:
    """Invalid, as for a view that is not there, if the person does not see it."""
    view = request.registry.views.find(id)
    if view is not None and not visible.view(view):
        raise Invalid(NO_VIEW)


async def evaluate(request: OperatorRequest[BudgetEvaluation]) -> Result:
    """Evaluate before answering, so that it is done when a command without a server ends."""
    async with request.audited("budgets.evaluate", "budgets", {}):
        done = await request.services.require_budgets().evaluate()
    return {"evaluation": asdict(done)}
