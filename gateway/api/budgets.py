"""Budgets for keys and for people. What a person does not see is answered as if it were not there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from gateway.api.lists.budgets import (
    ALERTS,
    BUDGETS,
    OWNERS,
    ShownBudget,
    add_state,
    alert_rows,
    alerts_of_now,
    budget_rows,
    describe_budget,
    fresh,
    owner_rows,
)
from gateway.api.managed import Answer, Asker, ManagedResource
from gateway.api.times import parse_moment
from gateway.budgets.expansion import expanded
from gateway.budgets.figures import BudgetLedger
from gateway.errors import Refusal
from gateway.http.holders.money import MoneyServices
from gateway.http.lists import MemoryRows
from gateway.http.requests import KeyRequest, Result
from gateway.resources.budgets import (
    EXPANSIONS,
    BudgetChanges,
    BudgetItem,
    NewBudget,
    OneBudget,
    PlannedLimits,
    Silence,
)
from gateway.resources.declaration import stated
from spool.errors import Invalid, NotThere, SpoolError
from spool.ledger.queries import BILLED_TYPES
from spool.registry.budget_alerts import FIRED
from spool.registry.budgets import GRANULARITIES, MONTHLY, BudgetDraft, SpendBudget
from spool.registry.tables.budgets import NO_VIEW

_log = logging.getLogger(__name__)


async def _rows(asking: Asker) -> MemoryRows[ShownBudget]:
    sees = await asking.sees()
    return budget_rows(asking.services, sees.budget)


async def _create(asking: Asker, given: NewBudget) -> Answer:
    await _check_view(asking, given.view.id)
    await _check_money(asking, given.cost_type)
    draft = BudgetDraft(**{"granularity": MONTHLY, **_fields(given)})
    asking.registry.notices.check_channels("channels", draft.channels)
    known, table = await asking.known(), asking.registry.budgets
    most = asking.shared.most(table.limit)
    sees = (await asking.sees()).budget
    creating = table.create(draft, known=known, most=most, actor=asking.actor, sees=sees)
    return await _made(asking.services, await creating)


async def _show(asking: Asker, id: str) -> Answer:
    budget = await _budget(asking, id)
    wanted = frozenset(asking.http.query.getall("expand", []))
    if not wanted <= set(EXPANSIONS):
        raise Refusal(400, "invalid_parameter", f"expand must be one of {', '.join(EXPANSIONS)}")
    shown = describe_budget(add_state(asking.services, budget))
    if wanted:
        books = asking.services.require_budgets().books()
        shown = {**shown, **await _expanded(asking.services, books, id, wanted)}
    return {"budget": shown}


async def _change(asking: Asker, id: str, given: Any) -> Answer:
    await _budget(asking, id)
    if given.view is not UNSET:
        await _check_view(asking, given.view.id)
    await _check_money(asking, given.cost_type)
    values = _fields(given)
    registry = asking.registry
    registry.notices.check_channels("channels", values.get("channels", ()))
    known = await asking.known()
    changing = registry.budgets.change(
        id,
        values,
        version=given.version,
        known=known,
        actor=asking.actor,
        sees=(await asking.sees()).budget,
    )
    return await _made(asking.services, await changing)


async def _delete(asking: Asker, id: str) -> str:
    budget = await _budget(asking, id)
    asking.check_confirmed(budget.name, "name of the budget")
    await asking.registry.budgets.delete(id, actor=asking.actor)
    await _evaluate(asking.services, asking.services.require_budgets().evaluate_soon())
    return id


async def _with_current(asking: Asker, page: Mapping[str, Any]) -> Answer:
    """The page of a list, with what was spent of each budget on it, and where that leads, if it was asked for."""
    wanted = frozenset(page["filtering"]["current"].get("expand", ()))
    if wanted:
        books = asking.services.require_budgets().books()
        for item in page["budgets"]:
            item.update(await _expanded(asking.services, books, item["id"], wanted))
    return page


async def _budget(asking: Asker, id: str) -> SpendBudget:
    budget = asking.registry.budgets.get(id)
    if not (await asking.sees()).budget(budget):
        raise NotThere("there is no budget with this id")
    return budget


async def _check_view(asking: Asker, id: str) -> None:
    """Invalid, as for a view that is not there, if it is not seen."""
    view = asking.registry.views.find(id)
    if view is not None and not (await asking.sees()).view(view):
        raise Invalid(NO_VIEW)


async def _check_money(asking: Asker, cost_type: str | UnsetType) -> None:
    """Refusal 403 for billed money, some of which is of nobody's calls, if not all calls and all money are seen."""
    if cost_type in BILLED_TYPES and not (await asking.sees()).is_whole:
        raise Refusal(
            403,
            "limited_data",
            f"a budget of {cost_type} has money of calls that you may not see; take real_cost or metered_cost",
        )


BUDGET = ManagedResource(
    noun="budget",
    root="budget",
    lists=BUDGETS,
    new=NewBudget,
    changes=BudgetChanges,
    item=BudgetItem,
    one=OneBudget,
    rows=_rows,
    create=_create,
    show=_show,
    change=_change,
    delete=_delete,
    fill=_with_current,
)


async def read_budget_owners(request: KeyRequest[MoneyServices, None]) -> Result:
    id = request.word("budget_id")
    page = await request.list(OWNERS, await owner_rows(request.services, id))
    return {"budget": {"id": id}, **page}


async def read_budget_alerts(request: KeyRequest[MoneyServices, None]) -> Result:
    table = request.services.require_registry().budgets
    id = table.get(request.word("budget_id")).id
    page = await request.list(ALERTS, alert_rows(await table.alerts(id)))
    return {"budget": {"id": id}, **page}


async def _expanded(
    money: MoneyServices, books: BudgetLedger, id: str, wanted: frozenset[str]
) -> dict[str, object]:
    return await expanded(books, await fresh(money, books, id), wanted)


async def _made(money: MoneyServices, budget: SpendBudget) -> Answer:
    """Evaluate it at once, so that the answer can say what is past already."""
    past: list[int] | None = None
    if await _evaluate(money, money.require_budgets().evaluate_one(budget)):
        periods = await alerts_of_now(money, budget)
        alerts = [alert for period in periods for owner in period.owners.values() for alert in owner]
        past = sorted({alert.percent for alert in alerts if alert.state == FIRED and not alert.told})
    return {"budget": describe_budget(add_state(money, budget)), "already_past": past}


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
