"""Views and budgets."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.budgets import BUDGET
from gateway.api.lists import budgets as budget_lists
from gateway.api.managed import DELETE, SHOW
from gateway.api.views import VIEW
from gateway.operator.address import SLICED
from gateway.operator.costs import budgets
from gateway.operator.managed import managed_by_people
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS

ROWS = (
    *managed_by_people(VIEW, "/views", reads=VIEW_COSTS, changes=MODIFY_VIEWS_AND_BUDGETS, shows=SLICED,
                       words={SHOW: "Show a view, by its id or its name"}),
    *managed_by_people(BUDGET, "/budgets", reads=VIEW_COSTS, changes=MODIFY_VIEWS_AND_BUDGETS, shows=SLICED,
                       words={DELETE: "Delete a budget and its alerts"}, repeated=("expand",), in_turn=True,
                       is_confirmed=True, is_shown_when_deleted=True),
    call("POST", "/budgets/evaluate", MODIFY_VIEWS_AND_BUDGETS, budgets.evaluate, "Evaluate all budgets now",
         takes=budgets.BudgetEvaluation),
    call("GET", "/budgets/{id}/owners", VIEW_COSTS, budgets.list_owners, "List the owners of a budget",
         lists=budget_lists.OWNERS, shows=SLICED, in_turn=True),
    call("GET", "/budgets/{id}/alerts", VIEW_COSTS, budgets.list_alerts, "List the alerts of a budget",
         lists=budget_lists.ALERTS, shows=SLICED, in_turn=True),
)  # fmt: skip
