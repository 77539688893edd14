"""What operators ask of budgets beside the calls of every resource, and an evaluation by hand."""

from __future__ import annotations

from dataclasses import asdict

from gateway.http.holders.money import MoneyServices
from gateway.http.operator.address import SLICED, call
from gateway.http.operator.body import RequestBody
from gateway.http.operator.requests import OperatorRequest
from gateway.http.requests import Result
from gateway.money.budgets.declared import BudgetTable, SpendBudget
from gateway.money.calls.lists.budgets import ALERTS, OWNERS, alert_rows, alerts_of_now, owner_rows
from spool.errors import NotThere
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS


class BudgetEvaluation(RequestBody):
    """An empty object."""


@call("POST", "/budgets/evaluate", MODIFY_VIEWS_AND_BUDGETS, "Evaluate all budgets now")
async def evaluate(request: OperatorRequest[MoneyServices, BudgetEvaluation]) -> Result:
    """Evaluate before answering, so that it is done when a command without a server ends."""
    async with request.audited("budgets.evaluate", "budgets", {}):
        done = await request.services.require_budgets().evaluate()
    return {"evaluation": asdict(done)}


@call(
    "GET",
    "/budgets/{id}/owners",
    VIEW_COSTS,
    "List the owners of a budget",
    lists=OWNERS,
    shows=SLICED,
    in_turn=True,
)
async def list_owners(request: OperatorRequest[MoneyServices, None]) -> Result:
    id = (await _budget(request)).id
    return {"budget": {"id": id}, **await request.list(OWNERS, await owner_rows(request.services, id))}


@call(
    "GET",
    "/budgets/{id}/alerts",
    VIEW_COSTS,
    "List the alerts of a budget",
    lists=ALERTS,
    shows=SLICED,
    in_turn=True,
)
async def list_alerts(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    List the alerts of a budget. Users with limited data access see those of the budget and its view as
    they are now.
    """
    budget = await _budget(request)
    if request.is_limited:
        kept = await alerts_of_now(request.services, budget)
    else:
        kept = await request.registry.table(BudgetTable).alerts(budget.id)
    return {"budget": {"id": budget.id}, **await request.list(ALERTS, alert_rows(kept))}


async def _budget(request: OperatorRequest[MoneyServices, None]) -> SpendBudget:
    """Return the budget of the path. NotThere if there is none that the person sees."""
    budget = request.registry.table(BudgetTable).get(request.word("id"))
    if not (await request.reads.visible()).budget(budget):
        raise NotThere("there is no budget with this id")
    return budget
