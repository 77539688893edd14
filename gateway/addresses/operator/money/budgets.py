"""Views and budgets."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.lists import budgets as budget_lists
from gateway.operator.address import SLICED
from gateway.operator.costs import budgets
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS

ROWS = (
    call("POST", "/budgets/evaluate", MODIFY_VIEWS_AND_BUDGETS, budgets.evaluate, "Evaluate all budgets now",
         takes=budgets.BudgetEvaluation),
    call("GET", "/budgets/{id}/owners", VIEW_COSTS, budgets.list_owners, "List the owners of a budget",
         lists=budget_lists.OWNERS, shows=SLICED, in_turn=True),
    call("GET", "/budgets/{id}/alerts", VIEW_COSTS, budgets.list_alerts, "List the alerts of a budget",
         lists=budget_lists.ALERTS, shows=SLICED, in_turn=True),
)  # fmt: skip
