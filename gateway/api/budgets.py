"""
Budgets for keys that manage them: one scope for each method.

`name`, `view`, `planned_limits`, `alerts`, `cost_type`, `granularity` and the expansions are the published interface's;
the other fields are Tollhouse's own, and may be left out.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection, Mapping
from typing import Any, Literal

import msgspec

from gateway.api.budget_lists import (
    ALERTS,
    BUDGETS,
    OWNERS,
    alert_rows,
    alerts_of_now,
    budget_rows,
    fresh,
    owner_rows,
    shown_budget,
    with_state,
)
from gateway.api.costs import moment
from gateway.budgets.expansion import EXPANSIONS, expanded
from gateway.errors import Refusal
from gateway.http.requests import AdmittedRequest, KeyRequest, Result
from gateway.http.services import OperatorServices
from spool.errors import Invalid, SpoolError
from spool.registry.budget_alerts import FIRED
from spool.registry.budgets import GRANULARITIES, MONTHLY, BudgetDraft, SpendBudget
from spool.registry.operators import Actor

_log = logging.getLogger(__name__)

Granularity = Literal["daily", "weekly", "monthly", "quarterly", "yearly"]
Measure = Literal["cost", "tokens", "calls"]
YesNo = Literal["Y", "N"]


class ViewName(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str


class PlannedAmount(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Decimal text, or a whole number."""

    amount: str | int


class Silence(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`until` is a day (UTC) or an RFC 3339 time: until then what is crossed is shown and not sent."""

    until: str
    reason: str = ""


PlannedLimits = dict[str, dict[str, PlannedAmount]]  # by granularity and first day


class NewBudget(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    `planned_limits` has the periods of the granularity; `default_amount` is for those that it does not name. `per` is a
    dimension: each of its values has the amount of its own. No `channels`: those of the view, else all.
    """

    name: str
    view: ViewName
    planned_limits: PlannedLimits = {}
    alerts: dict[str, YesNo] = {}
    cost_type: Literal["real_cost"] = "real_cost"
    granularity: Granularity | None = None
    default_amount: str | int | None = None
    time_zone: str = "UTC"
    measure: Measure = "cost"
    per: str | None = None
    forecast_alerts: dict[str, YesNo] = {}
    channels: list[str] = []
    silence: Silence | None = None


class BudgetChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    What is left out stays as it is. With the `version` that was read, the change is refused if
    somebody else made one since.
    """

    version: str | None = None
    name: str | msgspec.UnsetType = msgspec.UNSET
    view: ViewName | msgspec.UnsetType = msgspec.UNSET
    planned_limits: PlannedLimits | msgspec.UnsetType = msgspec.UNSET
    alerts: dict[str, YesNo] | msgspec.UnsetType = msgspec.UNSET
    cost_type: Literal["real_cost"] | msgspec.UnsetType = msgspec.UNSET
    granularity: Granularity | msgspec.UnsetType = msgspec.UNSET
    default_amount: str | int | msgspec.UnsetType | None = msgspec.UNSET
    time_zone: str | msgspec.UnsetType = msgspec.UNSET
    measure: Measure | msgspec.UnsetType = msgspec.UNSET
    per: str | msgspec.UnsetType | None = msgspec.UNSET
    forecast_alerts: dict[str, YesNo] | msgspec.UnsetType = msgspec.UNSET
    channels: list[str] | msgspec.UnsetType = msgspec.UNSET
    silence: Silence | msgspec.UnsetType | None = msgspec.UNSET


class BudgetItem(msgspec.Struct, kw_only=True):
    """
    A budget as it is answered; times of the published interface are epoch seconds as text. `problem` says why it is not
    evaluated. `current`, `history`, `burnup` and `forecast` are there when they are asked for.
    """

    id: str
    name: str
    view: ViewName
    planned_limits: PlannedLimits
    alerts: dict[str, YesNo]
    cost_type: str
    granularity: Granularity
    created: str
    last_updated: str
    version: str
    default_amount: str | None
    time_zone: str
    measure: Measure
    per: str | None
    forecast_alerts: dict[str, YesNo]
    channels: list[str]
    silence: Silence | None
    problem: str | None
    percent: int | None
    current: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    history: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    burnup: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    forecast: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class OneBudget(msgspec.Struct, kw_only=True):
    """`already_past`, of one that was made or changed: percents that it is past already, which fire no alert."""

    budget: BudgetItem
    already_past: list[int] | msgspec.UnsetType | None = msgspec.UNSET


class OwnerItem(msgspec.Struct, kw_only=True):
    owner: str | None
    actual: str
    planned: str | None
    percent: int | None
    forecast: str | None
    calls: int
    unpriced_calls: int
    fired: list[int]


class AlertItem(msgspec.Struct, kw_only=True):
    period: str
    owner: str | None
    kind: str
    percent: int
    state: str
    since: str
    fired_at: str | None
    value: str
    planned: str
    told: bool
    corrected_at: str | None


async def read_budgets(request: KeyRequest[None]) -> Result:
    return await with_current(request.services.operators, await request.list(BUDGETS, _rows(request)))


async def create_budget(request: KeyRequest[NewBudget]) -> Result:
    return await create(request.services.operators, request.body, request.actor)


async def read_budget(request: KeyRequest[None]) -> Result:
    return await show(request.services.operators, request.word("budget_id"), request)


async def update_budget(request: KeyRequest[BudgetChanges]) -> Result:
    return await change(request.services.operators, request.word("budget_id"), request.body, request.actor)


async def delete_budget(request: KeyRequest[None]) -> Result:
    return await delete(request.services.operators, request.word("budget_id"), request.actor)


async def read_budget_owners(request: KeyRequest[None]) -> Result:
    id = request.word("budget_id")
    page = await request.list(OWNERS, await owner_rows(request.services.operators, id))
    return {"budget": {"id": id}, **page}


async def read_budget_alerts(request: KeyRequest[None]) -> Result:
    table = request.services.operators.require_registry().budgets
    id = table.get(request.word("budget_id")).id
    page = await request.list(ALERTS, alert_rows(await table.alerts(id)))
    return {"budget": {"id": id}, **page}


async def with_current(services: OperatorServices, page: Mapping[str, Any]) -> Mapping[str, object]:
    """The page of a list, with what was spent of each budget on it, and where that leads, if it was asked for."""
    wanted = frozenset(page["filtering"]["current"].get("expand", ()))
    for item in page["budgets"]:
        item.update(await _expanded(services, item["id"], wanted))
    return page


async def create(
    services: OperatorServices, given: NewBudget, actor: Actor, *, known: Collection[str] | None = None
) -> Mapping[str, object]:
    """`known` are the dimensions that it may name, if not all."""
    values = _fields(given)
    values.setdefault("granularity", MONTHLY)
    draft = BudgetDraft(**values)
    registry = services.require_registry()
    registry.notices.check_channels("channels", draft.channels)
    known, most = known or services.ledger.dimensions(), services.max_budgets()
    return await _made(services, await registry.budgets.create(draft, known=known, most=most, actor=actor))


async def change(
    services: OperatorServices, id: str, given: BudgetChanges, actor: Actor, *, known: Collection[str] | None = None
) -> Mapping[str, object]:
    """As `create`."""
    registry, values = services.require_registry(), _fields(given)
    registry.notices.check_channels("channels", values.get("channels", ()))
    known = known or services.ledger.dimensions()
    return await _made(
        services, await registry.budgets.change(id, values, version=given.version, known=known, actor=actor)
    )


async def delete(services: OperatorServices, id: str, actor: Actor) -> Mapping[str, object]:
    await services.require_registry().budgets.delete(id, actor=actor)
    await _evaluate(services, services.require_budgets().evaluate_soon())
    return {"budget": {"id": id}}


async def show(services: OperatorServices, id: str, request: AdmittedRequest[Any]) -> Mapping[str, object]:
    wanted = frozenset(request.http.query.getall("expand", []))
    if not wanted <= set(EXPANSIONS):
        raise Refusal(400, "invalid_parameter", f"expand must be one of {', '.join(EXPANSIONS)}")
    shown = shown_budget(with_state(services, services.require_registry().budgets.get(id)))
    return {"budget": {**shown, **await _expanded(services, id, wanted)}}


async def _expanded(services: OperatorServices, id: str, wanted: frozenset[str]) -> dict[str, object]:
    return await expanded(services.require_budgets().books(), await fresh(services, id), wanted) if wanted else {}


async def _made(services: OperatorServices, budget: SpendBudget) -> Mapping[str, object]:
    """Evaluate it at once, so that the answer can say what is past already."""
    past: list[int] | None = None
    if await _evaluate(services, services.require_budgets().evaluate_one(budget)):
        periods = await alerts_of_now(services, budget)
        alerts = [alert for period in periods for owner in period.owners.values() for alert in owner]
        past = sorted({alert.percent for alert in alerts if alert.state == FIRED and not alert.told})
    return {"budget": shown_budget(with_state(services, budget)), "already_past": past}


async def _evaluate(services: OperatorServices, evaluation: Awaitable[bool | None]) -> bool:
    """
    Whether it was evaluated. The change is kept already: a disk that is full now must not make it look refused.
    """
    try:
        return bool(await evaluation)
    except SpoolError:
        _log.exception("budgets wait for the next evaluation", extra={"action": "evaluation_put_off"})
        services.require_budgets().wake()
        return False


def _rows(request: KeyRequest[None]) -> Any:
    return budget_rows(request.services.operators)


def _fields(given: NewBudget | BudgetChanges) -> dict[str, Any]:
    """By the names of a draft, what is given."""
    values = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not msgspec.UNSET}
    values.pop("cost_type", None)
    values.pop("version", None)
    if "view" in values:
        values["view_id"] = values.pop("view").id
    if values.get("granularity", "") is None:
        del values["granularity"]
    if "planned_limits" in values:
        values |= _planned(values.pop("planned_limits"), values.get("granularity"))
    if "default_amount" in values:
        values["default_amount"] = _text(values["default_amount"])
    if "per" in values:
        values["per"] = values["per"] or ""
    if "channels" in values:
        values["channels"] = tuple(values["channels"])
    if "silence" in values:
        silence = values.pop("silence")
        values["silent_until"] = 0.0 if silence is None else moment("silence.until", silence.until).timestamp()
        values["silent_reason"] = "" if silence is None else silence.reason
    return values


def _planned(limits: PlannedLimits, granularity: str | None) -> dict[str, Any]:
    """The amounts, and the granularity that they name."""
    if not limits:
        return {"planned": {}}
    if len(limits) > 1 or not limits.keys() <= {granularity or next(iter(limits))} or not limits.keys() <= _KNOWN:
        raise Invalid(f"planned_limits has the periods of one granularity: {', '.join(GRANULARITIES)}")
    [(name, periods)] = limits.items()
    return {"granularity": name, "planned": {day: _text(each.amount) for day, each in periods.items()}}


_KNOWN = set(GRANULARITIES)


def _text(amount: str | int | None) -> str:
    return "" if amount is None else str(amount)
