"""Addresses of budgets."""

from __future__ import annotations

from functools import partial

from gateway.addresses.managing import managing
from gateway.api import budgets
from gateway.api.budget_lists import ALERTS, BUDGETS, OWNERS
from gateway.http.address import Content
from gateway.http.answers import JSON
from gateway.schemas import TEXT, closed

_ALL = "/v2/budgets"
_ONE = _ALL + "/{budget_id}"
_SHOWN: Content = {JSON: budgets.OneBudget}
_DELETED: Content = {JSON: closed({"budget": closed({"id": TEXT})})}

_all = partial(managing, group="budgets", endpoint="budgets")
_one = partial(managing, group="budgets", endpoint="budgets/one")
_part = partial(managing, group="budgets", scope="read_budget")

BUDGET_ROWS = (
    _all("GET", _ALL, budgets.read_budgets, "List budgets", lists=BUDGETS, item=budgets.BudgetItem,
         in_turn=True),
    _all("POST", _ALL, budgets.create_budget, "Create a budget", takes=budgets.NewBudget, gives=_SHOWN),
    _one("GET", _ONE, budgets.read_budget, "A budget; `expand` adds current, history, burnup or forecast",
         gives=_SHOWN, repeated=("expand",), in_turn=True),
    _one("PATCH", _ONE, budgets.update_budget, "Change a budget", takes=budgets.BudgetChanges, gives=_SHOWN),
    _one("DELETE", _ONE, budgets.delete_budget, "Delete a budget and its alerts", gives=_DELETED),
    _part("GET", _ONE + "/owners", budgets.read_budget_owners, "The owners of a budget in the running period",
          endpoint="budgets/one/owners", lists=OWNERS, item=budgets.OwnerItem, in_turn=True),
    _part("GET", _ONE + "/alerts", budgets.read_budget_alerts, "What became of the thresholds of a budget, by period",
          endpoint="budgets/one/alerts", lists=ALERTS, item=budgets.AlertItem, in_turn=True),
)  # fmt: skip
