"""Addresses of budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.api import budgets
from gateway.api.budget_lists import ALERTS, BUDGETS, OWNERS
from gateway.http.address import READ, WRITE, Address, Content
from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import AddressHandler, check_json
from gateway.schemas import OBJECT, TEXT, Schema, closed

_ALL = "/v2/budgets"
_ONE = _ALL + "/{budget_id}"


def _budgets(
    method: str,
    path: str,
    scope: str,
    handler: AddressHandler,
    summary: str,
    *,
    takes: type | None = None,
    gives: Mapping[int, Content] | None = None,
    lists: List[Any] | None = None,
    item: type | Schema = OBJECT,
    repeated: tuple[str, ...] = (),
) -> Address:
    return Address(
        methods=("GET", "HEAD") if method == "GET" else (method,),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint=path.removeprefix("/v2/").replace("{budget_id}", "one"),
        scope=f"budgets:{scope}",
        check=check_json if takes else None,
        body=takes,
        takes={JSON: takes} if takes else {},
        gives=gives or {},
        lists=lists,
        item=item,
        repeated=repeated,
        refusals=(*(WRITE if takes else READ), 404, 409),
    )


_SHOWN: Mapping[int, Content] = {200: {JSON: budgets.OneBudget}}

BUDGET_ROWS = (
    _budgets("GET", _ALL, "read_budgets", budgets.read_budgets, "List budgets", lists=BUDGETS, item=budgets.BudgetItem),
    _budgets("POST", _ALL, "create_budget", budgets.create_budget, "Create a budget",
             takes=budgets.NewBudget, gives=_SHOWN),
    _budgets("GET", _ONE, "read_budget", budgets.read_budget,
             "A budget; `expand` adds current, history, burnup or forecast", gives=_SHOWN, repeated=("expand",)),
    _budgets("PATCH", _ONE, "update_budget", budgets.update_budget, "Change a budget",
             takes=budgets.BudgetChanges, gives=_SHOWN),
    _budgets("DELETE", _ONE, "delete_budget", budgets.delete_budget, "Delete a budget and its alerts",
             gives={200: {JSON: closed({"budget": closed({"id": TEXT})})}}),
    _budgets("GET", _ONE + "/owners", "read_budget", budgets.read_budget_owners,
             "The owners of a budget in the running period", lists=OWNERS, item=budgets.OwnerItem),
    _budgets("GET", _ONE + "/alerts", "read_budget", budgets.read_budget_alerts,
             "What became of the thresholds of a budget, by period", lists=ALERTS, item=budgets.AlertItem),
)  # fmt: skip
