"""Addresses of budgets."""

from __future__ import annotations

from functools import partial

from gateway.api import budgets
from gateway.api.lists.budgets import ALERTS, OWNERS
from gateway.api.managed import managing
from gateway.resources.budgets import AlertItem, OwnerItem

_ALL = "/v2/budgets"
_ONE = _ALL + "/{budget_id}"

_part = partial(managing, group="budgets", scope="read_budget")

ROWS = (
    _part("GET", _ONE + "/owners", budgets.read_budget_owners, "The owners of a budget in the running period",
          endpoint="budgets/one/owners", lists=OWNERS, item=OwnerItem, in_turn=True),
    _part("GET", _ONE + "/alerts", budgets.read_budget_alerts, "What became of the thresholds of a budget, by period",
          endpoint="budgets/one/alerts", lists=ALERTS, item=AlertItem, in_turn=True),
)  # fmt: skip
