"""Budgets for keys and for people. What a person does not see is answered as if it were not there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from gateway.http.address import key_call
from gateway.http.holders.money import MoneyServices
from gateway.http.managed import DELETE, SHOW, Answer, Asker, ByKeys, ByPeople, ManagedResource
from gateway.http.requests import KeyRequest, Result
from gateway.http.resources.declaration import stated
from gateway.http.visible import SLICED
from gateway.money.budgets.declared import (
    EXPANSIONS,
    FIRED,
    GRANULARITIES,
    NO_VIEW,
    AlertItem,
    BudgetChanges,
    BudgetItem,
    BudgetTable,
    NewBudget,
    OneBudget,
    OwnerItem,
    PlannedLimits,
    Silence,
    SpendBudget,
)
from gateway.money.budgets.expansion import expanded
from gateway.money.budgets.figures import BudgetLedger
from gateway.money.calls.lists.budgets import (
    ALERTS,
    BUDGETS,
    OWNERS,
    ShownBudget,
    add_state,
    alert_rows,
    alerts_of_now,
    describe_budget,
    fresh,
    owner_rows,
)
from gateway.money.costs.times import parse_moment
from gateway.service.errors import Refusal
from spool.errors import Invalid, SpoolError
from spool.ledger.queries import BILLED_TYPES
from spool.registry.document_table import Sees
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS

_log = logging.getLogger(__name__)


class BudgetResource(ManagedResource[SpendBudget]):
    noun = "budget"
    table = BudgetTable
    lists = BUDGETS
    new = NewBudget
    changes = BudgetChanges
    item = BudgetItem
    one = OneBudget
    has_dimensions = True
    keys = ByKeys(
        path="/v2/budgets",
        id="budget_id",
        group="budgets",
        endpoint="budgets",
        one_endpoint="budgets/one",
        words={
            SHOW: "A budget; `expand` adds current, history, burnup or forecast",
            DELETE: "Delete a budget and its alerts",
        },
        repeated=("expand",),
        in_turn=True,
    )
    people = ByPeople(
        path="/budgets",
        reads=VIEW_COSTS,
        changes=MODIFY_VIEWS_AND_BUDGETS,
        shows=SLICED,
        words={DELETE: "Delete a budget and its alerts"},
        repeated=("expand",),
        in_turn=True,
        is_confirmed=True,
        is_shown_when_deleted=True,
    )

    async def sees(self, asking: Asker[Any]) -> Sees[SpendBudget]:
        return (await asking.sees()).budget

    async def shown(self, asking: Asker[Any], row: SpendBudget) -> ShownBudget:
        return add_state(asking.services, row)

    async def fields(self, asking: Asker[Any], given: Any) -> dict[str, Any]:
        if given.view is not UNSET:
            await _check_view(asking, given.view.id)
        await _check_money(asking, given.cost_type)
        values = _fields(given)
        asking.registry.notices.check_channels("channels", values.get("channels", ()))
        return values

    async def show(self, asking: Asker[Any], word: str) -> Answer:
        budget = await self.find(asking, word)
        wanted = frozenset(asking.http.query.getall("expand", []))
        if not wanted <= set(EXPANSIONS):
            raise Refusal(400, "invalid_parameter", f"expand must be one of {', '.join(EXPANSIONS)}")
        shown = describe_budget(add_state(asking.services, budget))
        if wanted:
            books = asking.services.require_budgets().books()
            shown = {**shown, **await _expanded(asking.services, books, budget.id, wanted)}
        return {"budget": shown}

    async def made(self, asking: Asker[Any], row: SpendBudget) -> Answer:
        """Evaluate it at once, so that the answer can say what is past already."""
        money = asking.services
        past: list[int] | None = None
        if await _evaluate(money, money.require_budgets().evaluate_one(row)):
            periods = await alerts_of_now(money, row)
            alerts = [alert for period in periods for owner in period.owners.values() for alert in owner]
            past = sorted({alert.percent for alert in alerts if alert.state == FIRED and not alert.told})
        return {**await self.answer(asking, row), "already_past": past}

    async def delete(self, asking: Asker[Any], word: str) -> str:
        budget = await self.find(asking, word)
        asking.check_confirmed(budget.name, "name of the budget")
        await asking.registry.table(BudgetTable).delete(budget.id, actor=asking.actor)
        await _evaluate(asking.services, asking.services.require_budgets().evaluate_soon())
        return budget.id

    async def filled(self, asking: Asker[Any], page: Mapping[str, Any]) -> Answer:
        """Add what was spent of each budget on the page, and where that leads, if it was requested."""
        wanted = frozenset(page["filtering"]["current"].get("expand", ()))
        if wanted:
            books = asking.services.require_budgets().books()
            for item in page["budgets"]:
                item.update(await _expanded(asking.services, books, item["id"], wanted))
        return page


async def _check_view(asking: Asker[Any], id: str) -> None:
    """Invalid, as for a view that is not there, if it is not seen."""
    view = asking.registry.views.find(id)
    if view is not None and not (await asking.sees()).view(view):
        raise Invalid(NO_VIEW)


async def _check_money(asking: Asker[Any], cost_type: str | UnsetType) -> None:
    """Refusal 403 for billed money, some of which is of nobody's calls, if not all calls and all money are seen."""
    if cost_type in BILLED_TYPES and not (await asking.sees()).is_whole:
        raise Refusal(
            403,
            "limited_data",
            f"a budget of {cost_type} has money of calls that you may not see; take real_cost or metered_cost",
        )


BUDGET = BudgetResource()


@key_call(
    "GET",
    "/v2/budgets/{budget_id}/owners",
    "budgets:read_budget",
    "The owners of a budget in the running period",
    endpoint="budgets/one/owners",
    lists=OWNERS,
    item=OwnerItem,
    in_turn=True,
)
async def read_budget_owners(request: KeyRequest[MoneyServices, None]) -> Result:
    id = request.word("budget_id")
    page = await request.list(OWNERS, await owner_rows(request.services, id))
    return {"budget": {"id": id}, **page}


@key_call(
    "GET",
    "/v2/budgets/{budget_id}/alerts",
    "budgets:read_budget",
    "What became of the thresholds of a budget, by period",
    endpoint="budgets/one/alerts",
    lists=ALERTS,
    item=AlertItem,
    in_turn=True,
)
async def read_budget_alerts(request: KeyRequest[MoneyServices, None]) -> Result:
    table = request.services.require_registry().table(BudgetTable)
    id = table.get(request.word("budget_id")).id
    page = await request.list(ALERTS, alert_rows(await table.alerts(id)))
    return {"budget": {"id": id}, **page}


async def _expanded(
    money: MoneyServices, books: BudgetLedger, id: str, wanted: frozenset[str]
) -> dict[str, object]:
    return await expanded(books, await fresh(money, books, id), wanted)


async def _evaluate(money: MoneyServices, evaluation: Awaitable[bool | None]) -> bool:
    """
    Await an evaluation; True if it was made. The change is stored already: a full disk now must not make
    it look refused.
    """
    try:
        return bool(await evaluation)
    except SpoolError:
        _log.exception("budgets wait for the next evaluation", extra={"action": "evaluation_put_off"})
        money.require_budgets().wake()
        return False


def _fields(given: Any) -> dict[str, Any]:
    """Return the stated fields by the names of a draft."""
    values = stated(given, default_amount=_text, per=lambda dimension: dimension or "")
    if "view" in values:
        values["view_id"] = values.pop("view").id
    if values.get("granularity", "") is None:
        del values["granularity"]
    if "planned_limits" in values:
        values |= _planned(values.pop("planned_limits"), values.get("granularity"))
    if "silence" in values:
        values |= _silence(values.pop("silence"))
    return values


def _silence(silence: Silence | None) -> dict[str, Any]:
    if silence is None:
        return {"silent_until": 0.0, "silent_reason": ""}
    return {
        "silent_until": parse_moment("silence.until", silence.until).timestamp(),
        "silent_reason": silence.reason,
    }


def _planned(limits: PlannedLimits, granularity: str | None) -> dict[str, Any]:
    """The amounts, and the granularity that they name."""
    if not limits:
        return {"planned": {}}
    if (
        len(limits) > 1
        or not limits.keys() <= {granularity or next(iter(limits))}
        or not limits.keys() <= _KNOWN
    ):
        raise Invalid(f"planned_limits has the periods of one granularity: {', '.join(GRANULARITIES)}")
    [(name, periods)] = limits.items()
    return {"granularity": name, "planned": {day: _text(each.amount) for day, each in periods.items()}}


_KNOWN = set(GRANULARITIES)


def _text(amount: str | int | None) -> str:
    return "" if amount is None else str(amount)
