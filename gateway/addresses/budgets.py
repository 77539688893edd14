"""Addresses of budgets."""

from __future__ import annotations

from functools import partial

from gateway.api import budgets
from gateway.api.lists.budgets import ALERTS, OWNERS
from gateway.api.managed import DELETE, SHOW, managed_by_keys, managing
from gateway.resources.budgets import AlertItem, OwnerItem

_ALL = "/v2/budgets"
_ONE = _ALL + "/{budget_id}"

_part = partial(managing, group="budgets", scope="read_budget")

ROWS = (
    *managed_by_keys(
        budgets.BUDGET, _ALL, "budget_id", group="budgets", endpoint="budgets", one_endpoint="budgets/one",
        words={SHOW: "A budget; `expand` adds current, history, burnup or forecast",
               DELETE: "Delete a budget and its alerts"},
        repeated=("expand",), in_turn=True,
    ),
    _part("GET", _ONE + "/owners", budgets.read_budget_owners, "The owners of a budget in the running period",
          endpoint="budgets/one/owners", lists=OWNERS, item=OwnerItem, in_turn=True),
    _part("GET", _ONE + "/alerts", budgets.read_budget_alerts, "What became of the thresholds of a budget, by period",
          endpoint="budgets/one/alerts", lists=ALERTS, item=AlertItem, in_turn=True),
)  # fmt: skip
