"""The calls of the operator API on budgets: the same values and rules as for keys, and an evaluation by hand."""

from __future__ import annotations

from dataclasses import asdict

from gateway.api import budgets
from gateway.api.budget_lists import ALERTS, BUDGETS, OWNERS, alert_rows, budget_rows, owner_rows
from gateway.api.budgets import BudgetChanges, NewBudget
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid


class BudgetEvaluation(RequestBody):
    """An empty object."""


async def list_budgets(request: OperatorRequest[None]) -> Result:
    page = await request.list(BUDGETS, budget_rows(request.services))
    return await budgets.with_current(request.services, page)


async def add_budget(request: OperatorRequest[NewBudget]) -> Result:
    return await budgets.create(request.services, request.body, request.actor)


async def show_budget(request: OperatorRequest[None]) -> Result:
    return await budgets.show(request.services, request.word("id"), request)


async def edit_budget(request: OperatorRequest[BudgetChanges]) -> Result:
    return await budgets.change(request.services, request.word("id"), request.body, request.actor)


async def remove_budget(request: OperatorRequest[None]) -> Result:
    """Delete a budget; `confirm` is its exact name."""
    budget = request.registry.budgets.get(request.word("id"))
    if request.http.query.get("confirm", "") != budget.name:
        raise Invalid("confirm must be the exact name of the budget")
    return await budgets.delete(request.services, budget.id, request.actor)


async def list_owners(request: OperatorRequest[None]) -> Result:
    id = request.word("id")
    return {"budget": {"id": id}, **await request.list(OWNERS, await owner_rows(request.services, id))}


async def list_alerts(request: OperatorRequest[None]) -> Result:
    id = request.word("id")
    return {"budget": {"id": id}, **await request.list(ALERTS, await alert_rows(request.services, id))}


async def evaluate(request: OperatorRequest[BudgetEvaluation]) -> Result:
    """Evaluate before answering, so that it is done when a command without a server ends."""
    async with request.audited("budgets.evaluate", "budgets", {}):
        done = await request.services.require_budgets().evaluate()
    return {"evaluation": asdict(done)}
