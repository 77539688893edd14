"""
API of budgets, their owners and their alerts, for keys and for people. If a person may not see a budget, the
API answers as if the budget did not exist.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.core.errors import Refusal
from gateway.core.fields import build_answer, given_fields, one_field_answer
from gateway.core.schemas import TEXT, closed_object_schema, schema_with_description
from gateway.core.visibility import SLICED
from gateway.http.address import key_call
from gateway.http.answers import JSON
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort, yes_no_filter
from gateway.http.requests import Result
from gateway.money.budgets.declared import (
    ACTUAL,
    CURRENT,
    EXPANSIONS,
    FIRED,
    FORECAST,
    GRANULARITIES,
    KINDS,
    MEASURES,
    NO_VIEW,
    STATES,
    Alert,
    AlertItem,
    BudgetChanges,
    BudgetItem,
    BudgetTable,
    NewBudget,
    OneBudget,
    OwnerItem,
    PeriodAlerts,
    SpendBudget,
)
from gateway.money.budgets.evaluator import BudgetEvaluator, BudgetRun
from gateway.money.budgets.expansion import forecast_text, percent_of_limit, read_requested_sections
from gateway.money.budgets.figures import BudgetFigures, BudgetLedger, OwnerSpend, evaluation_problem
from gateway.money.budgets.forecast import Forecast, TooEarly
from gateway.money.budgets.judging import planned_limit, rules_digest
from gateway.money.budgets.states import highest_owner_spend, state_of_budget
from gateway.money.costs.times import format_seconds
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import (
    DELETE,
    SHOW,
    ByKeys,
    ByPeople,
    JsonAnswer,
    ManagedResource,
    OperationCaller,
)
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool import money
from spool.errors import Invalid, NotThere, SpoolError
from spool.ledger.dimensions import BILLED_TYPES
from spool.meters import METERS
from spool.record import utc_iso
from spool.registry.document_table import Sees
from spool.registry.field_notes import words
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS

_log = logging.getLogger(__name__)
_NO_PERCENT = -1  # sort value for a missing percentage; it is below every percentage


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBudget:
    """
    A budget in a list. `percent` is the highest percentage among the budget's owners, such as teams, as of
    the last evaluation. It is None without an amount, and until the budget has been evaluated with its
    current rules and view.
    """

    budget: SpendBudget
    problem: str | None
    state: str
    percent: int | None
    per_label: str
    billed_through: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRow:
    """An owner in the running period. The owner is "" if it is unknown, and for a budget without owners."""

    budget: SpendBudget
    owner: str
    spent: OwnerSpend
    limit: int | None
    forecast: Forecast | TooEarly | None
    fired: list[int]

    @property
    def percent(self) -> int | None:
        return percent_of_limit(self.spent.actual, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    owner: str
    first_day: str
    alert: Alert


def describe_budget(row: ShownBudget) -> dict[str, object]:
    budget = row.budget
    return build_answer(
        BudgetItem,
        budget,
        created=format_seconds(budget.created),
        last_updated=format_seconds(budget.last_updated),
        default_amount=budget.default_amount or None,
        per=budget.per or None,
        per_label=row.per_label or None,
        silence=_describe_silenced_notices(budget),
        problem=row.problem,
        state=row.state,
        percent=row.percent,
        billed_through=row.billed_through,
    )


def _describe_silenced_notices(budget: SpendBudget) -> dict[str, object] | None:
    if budget.silence is None:
        return None
    return {"until": utc_iso(budget.notices_silenced_until), "reason": budget.silence.reason}


def describe_owner(row: OwnerRow) -> dict[str, object]:
    return build_answer(
        OwnerItem,
        row,
        owner=row.owner or None,
        actual=money.units_to_text(row.spent.actual),
        planned=None if row.limit is None else money.units_to_text(row.limit),
        forecast=forecast_text(row.budget, row.forecast),
        calls=row.spent.calls,
        unpriced_calls=row.spent.unpriced,
        unconverted=row.spent.unconverted,
    )


def describe_alert(row: AlertRow) -> dict[str, object]:
    alert = row.alert
    return build_answer(
        AlertItem,
        alert,
        period=row.first_day,
        owner=row.owner or None,
        since=format_seconds(alert.since),
        fired_at=None if alert.fired_at is None else format_seconds(alert.fired_at),
        planned=alert.limit,
        corrected_at=None if alert.corrected_at is None else format_seconds(alert.corrected_at),
    )


BUDGETS: ListDefinition[ShownBudget] = ListDefinition(
    root="budgets",
    show=describe_budget,
    identity=Sort(value=lambda row: row.budget.id),
    sorts={
        "name": Sort(value=lambda row: row.budget.name),
        "last_updated": Sort(value=lambda row: row.budget.last_updated),
        "created": Sort(value=lambda row: row.budget.created),
        "percent": Sort(value=lambda row: _NO_PERCENT if row.percent is None else row.percent),
    },
    default_sort=("name", "asc"),
    filters={
        "view": Filter(values=lambda row: (row.budget.view_id,)),
        "granularity": Filter(values=lambda row: (row.budget.granularity,), valid_values=GRANULARITIES),
        "measure": Filter(values=lambda row: (row.budget.measure,), valid_values=(*MEASURES, *METERS)),
        # Selects additional sections and filters no rows. It is declared as a filter so that cursors contain it.
        "expand": Filter(values=lambda row: (CURRENT, FORECAST), valid_values=(CURRENT, FORECAST)),
    },
)

OWNERS: ListDefinition[OwnerRow] = ListDefinition(
    root="owners",
    show=describe_owner,
    identity=Sort(value=lambda row: row.owner),
    sorts={
        # This float is only for sorting. The response has the exact value.
        "actual": Sort(value=lambda row: row.spent.actual / money.UNIT),
        "owner": Sort(value=lambda row: row.owner),
        "percent": Sort(value=lambda row: _NO_PERCENT if row.percent is None else row.percent),
    },
    default_sort=("actual", "desc"),
    filters={
        "owner": Filter(values=lambda row: (row.owner,), names_people=True),
        "is_past": yes_no_filter(lambda row: row.fired),
    },
    beside={"budget": closed_object_schema({"id": schema_with_description(TEXT, "The id of the budget.")})},
)

ALERTS: ListDefinition[AlertRow] = ListDefinition(
    root="alerts",
    show=describe_alert,
    identity=Sort(value=lambda row: f"{row.first_day} {row.alert.kind} {row.alert.percent:04} {row.owner}"),
    sorts={
        "since": Sort(value=lambda row: row.alert.since),
        "period": Sort(value=lambda row: row.first_day),
        "percent": Sort(value=lambda row: row.alert.percent),
        "owner": Sort(value=lambda row: row.owner),
    },
    default_sort=("since", "desc"),
    filters={
        "state": Filter(values=lambda row: (row.alert.state,), valid_values=STATES),
        "kind": Filter(values=lambda row: (row.alert.kind,), valid_values=KINDS),
        "period": Filter(values=lambda row: (row.first_day,)),
        "owner": Filter(values=lambda row: (row.owner,), names_people=True),
    },
    beside={"budget": closed_object_schema({"id": schema_with_description(TEXT, "The id of the budget.")})},
)


def budget_with_state(money: MoneyServices, budget: SpendBudget) -> ShownBudget:
    view = money.require_registry().views.find(budget.view_id)
    problem = evaluation_problem(budget, view, money.ledger, money.clock.now())
    current = money.require_budgets().figures.get(budget.id)
    if current is not None and rules_digest(current.budget, current.view) != rules_digest(budget, view):
        current = None  # ignore the stored figures, because they were evaluated with other rules
    if problem is None and current is not None:
        problem = current.problem  # problem with which the totals failed at the last evaluation
    return ShownBudget(
        budget=budget,
        problem=problem,
        state=state_of_budget(problem, current),
        percent=_highest_percent(current),
        billed_through=None if current is None else current.billed_through,
        per_label=money.ledger.dimension_label(budget.per),
    )


async def owner_rows(money: MoneyServices, id: str) -> MemoryRows[OwnerRow]:
    """
    Return the owners in the running period. While the budget has a problem, there are none. Raises NotThere
    for an unknown id.
    """
    figures = await compute_figures(money, require_evaluator(money).budget_ledger(), id)
    if not figures.periods:
        return MemoryRows([])
    budget = figures.budget
    running = figures.periods[0]
    fired: dict[str, list[int]] = {}
    for period in await current_alerts(money, budget):
        if period.first_day == running.period.first_day:
            for owner, alerts in period.owners.items():
                fired_alerts = [alert for alert in alerts if alert.kind == ACTUAL and alert.state == FIRED]
                fired[owner] = [alert.percent for alert in fired_alerts]
    return MemoryRows(
        [
            OwnerRow(
                budget=budget,
                owner=owner,
                spent=spent,
                limit=planned_limit(budget, running),
                forecast=running.forecasts.get(owner),
                fired=fired.get(owner, []),
            )
            for owner, spent in running.spent.items()
        ]
    )


def alert_rows(budget_alerts: Sequence[PeriodAlerts]) -> MemoryRows[AlertRow]:
    return MemoryRows(
        [
            AlertRow(owner=owner, first_day=period.first_day, alert=alert)
            for period in budget_alerts
            for owner, alerts in period.owners.items()
            for alert in alerts
        ]
    )


async def current_alerts(money: MoneyServices, budget: SpendBudget) -> Sequence[PeriodAlerts]:
    """Return the alerts under the budget's current rules and view. Older alerts are about other calls."""
    registry = money.require_registry()
    rules = rules_digest(budget, registry.views.find(budget.view_id))
    return [
        period
        for period in await registry.declared_table(BudgetTable).alerts_of_budget(budget.id)
        if period.rules == rules
    ]


async def compute_figures(money: MoneyServices, books: BudgetLedger, id: str) -> BudgetFigures:
    """Compute the figures of a budget now. Raises NotThere for an unknown id."""
    registry = money.require_registry()
    budget = registry.declared_table(BudgetTable).get(id)
    return await books.read_figures(budget, registry.views.find(budget.view_id))


def require_evaluator(money: MoneyServices) -> BudgetEvaluator:
    return money.require_budgets()


def _highest_percent(figures: BudgetFigures | None) -> int | None:
    if figures is None or not figures.periods:
        return None
    running = figures.periods[0]
    limit = planned_limit(figures.budget, running)
    return percent_of_limit(highest_owner_spend(figures), limit)


class BudgetResource(ManagedResource[SpendBudget, MoneyServices]):
    noun = "budget"
    table = BudgetTable
    lists = BUDGETS
    new = NewBudget
    changes = BudgetChanges
    item = BudgetItem
    one = OneBudget
    files = ResourceFiles(
        name="budgets", key=("view", "name"), refers={"view": "views", "channels": "channels"}
    )
    searched = ("name",)
    has_dimensions = True
    keys = ByKeys(
        path="/v2/budgets",
        id="budget_id",
        group="budgets",
        endpoint="budgets",
        one_endpoint="budgets/one",
        words={
            SHOW: "Show a budget; `expand` adds current, history, burnup or forecast",
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

    async def visibility_test(self, caller: OperationCaller[MoneyServices]) -> Sees[SpendBudget]:
        return (await caller.sees()).can_see_budget

    async def convert_row_for_lists(
        self, caller: OperationCaller[MoneyServices], row: SpendBudget
    ) -> ShownBudget:
        return budget_with_state(caller.services, row)

    async def draft_fields(self, caller: OperationCaller[MoneyServices], new_values: Any) -> dict[str, Any]:
        if new_values.view is not UNSET:
            await _check_view(caller, new_values.view.id)
        await _check_cost_type(caller, new_values.cost_type)
        values = _draft_budget_fields(new_values)
        caller.registry.notices.check_channels("channels", values.get("channels", ()))
        return values

    async def show(self, caller: OperationCaller[MoneyServices], id_or_name: str) -> JsonAnswer:
        budget = await self.find(caller, id_or_name)
        expansions = frozenset(caller.query.getall("expand", []))
        if not expansions <= set(EXPANSIONS):
            raise Refusal(400, "invalid_parameter", f"expand must be one of {', '.join(EXPANSIONS)}")
        shown = describe_budget(budget_with_state(caller.services, budget))
        if expansions:
            books = caller.services.require_budgets().budget_ledger()
            shown = {**shown, **await _expand_budget(caller.services, books, budget.id, expansions)}
        return {"budget": shown}

    async def finish_write_and_answer(
        self, caller: OperationCaller[MoneyServices], row: SpendBudget
    ) -> JsonAnswer:
        """Evaluate the budget at once, so that the response lists the thresholds that are already crossed."""
        money = caller.services
        crossed_percents: list[int] | None = None
        if await _evaluate_and_tell_if_successful(
            money, money.require_budgets().evaluate_budget_if_totals_complete(row)
        ):
            periods = await current_alerts(money, row)
            alerts = [alert for period in periods for owner in period.owners.values() for alert in owner]
            crossed_percents = sorted(
                {alert.percent for alert in alerts if alert.state == FIRED and not alert.told}
            )
        return {**await self.row_answer(caller, row), "already_past": crossed_percents}

    async def delete(self, caller: OperationCaller[MoneyServices], id_or_name: str) -> str:
        budget = await self.find(caller, id_or_name)
        caller.check_confirmed(budget.name, "name of the budget")
        await caller.registry.declared_table(BudgetTable).delete(budget.id, actor=caller.actor)
        await _evaluate_and_tell_if_successful(
            caller.services, caller.services.require_budgets().evaluate_soon()
        )
        return budget.id

    async def add_requested_data(
        self, caller: OperationCaller[MoneyServices], page: Mapping[str, Any]
    ) -> JsonAnswer:
        expansions = frozenset(page["filtering"]["current"].get("expand", ()))
        if expansions:
            books = caller.services.require_budgets().budget_ledger()
            for item in page["budgets"]:
                item.update(await _expand_budget(caller.services, books, item["id"], expansions))
        return page


async def _check_view(caller: OperationCaller[MoneyServices], id: str) -> None:
    """Raise Invalid if the person may not see the view, as for a view that does not exist."""
    view = caller.registry.views.find(id)
    if view is not None and not (await caller.sees()).can_see_view(view):
        raise Invalid(NO_VIEW)


async def _check_cost_type(caller: OperationCaller[MoneyServices], cost_type: str | UnsetType) -> None:
    """
    Raise Refusal 403 for billed money if the person has limited data access, because some billed money
    belongs to no call.
    """
    if cost_type in BILLED_TYPES and not (await caller.sees()).is_whole:
        raise Refusal(
            403,
            "limited_data",
            f"you may see only some calls, so a budget of {cost_type} is not available; use real_cost "
            "or metered_cost",
        )


BUDGET = BudgetResource()


@key_call(
    "GET",
    "/v2/budgets/{budget_id}/owners",
    "budgets:read_budget",
    "List the owners of a budget in the running period",
    endpoint="budgets/one/owners",
    lists=OWNERS,
    item=OwnerItem,
    in_turn=True,
)
async def read_budget_owners(request: KeyRequest[MoneyServices, None]) -> Result:
    id = request.path_parameter("budget_id")
    page = await request.list_page(OWNERS, await owner_rows(request.services, id))
    return {"budget": {"id": id}, **page}


@key_call(
    "GET",
    "/v2/budgets/{budget_id}/alerts",
    "budgets:read_budget",
    "List the alerts of a budget by period",
    endpoint="budgets/one/alerts",
    lists=ALERTS,
    item=AlertItem,
    in_turn=True,
)
async def read_budget_alerts(request: KeyRequest[MoneyServices, None]) -> Result:
    table = request.services.require_registry().declared_table(BudgetTable)
    id = table.get(request.path_parameter("budget_id")).id
    page = await request.list_page(ALERTS, alert_rows(await table.alerts_of_budget(id)))
    return {"budget": {"id": id}, **page}


async def _expand_budget(
    money: MoneyServices, books: BudgetLedger, id: str, expansions: frozenset[str]
) -> dict[str, object]:
    return await read_requested_sections(books, await compute_figures(money, books, id), expansions)


async def _evaluate_and_tell_if_successful(money: MoneyServices, evaluation: Awaitable[bool | None]) -> bool:
    """
    Run an evaluation after a stored change. Return whether the evaluation succeeded.

    An error here, such as a full disk, must not look as if the change was refused.
    """
    try:
        return bool(await evaluation)
    except SpoolError:
        _log.exception(
            "the budgets could not be evaluated; the next evaluation tries again",
            extra={"action": "evaluation_put_off"},
        )
        money.require_budgets().request_evaluation()
        return False


def _draft_budget_fields(body: Any) -> dict[str, Any]:
    values = given_fields(body)
    if limits := values.get("planned_limits"):
        granularity = values.get("granularity") or next(iter(limits))
        if set(limits) != {granularity} or granularity not in GRANULARITIES:
            raise Invalid(
                f"planned_limits accepts periods of only one granularity: {', '.join(GRANULARITIES)}"
            )
        values["granularity"] = granularity
    return values


class BudgetEvaluation(RequestBody):
    """The request body, an empty JSON object."""


@operator_call(
    "POST",
    "/budgets/evaluate",
    MODIFY_VIEWS_AND_BUDGETS,
    "Evaluate all budgets now",
    gives={
        JSON: one_field_answer(
            "EvaluatedBudgets", evaluation=Annotated[BudgetRun, words("The result of the evaluation.")]
        )
    },
)
async def evaluate(request: OperatorRequest[MoneyServices, BudgetEvaluation]) -> Result:
    """
    Evaluate all budgets before answering. Otherwise a command without a server would exit before the
    evaluation finishes.
    """
    async with request.audited_change("budgets.evaluate", "budgets", {}):
        done = await request.services.require_budgets().evaluate_all()
    return {"evaluation": msgspec.to_builtins(done)}


@operator_call(
    "GET",
    "/budgets/{id}/owners",
    VIEW_COSTS,
    "List the owners of a budget",
    lists=OWNERS,
    item=OwnerItem,
    shows=SLICED,
    in_turn=True,
)
async def list_owners(request: OperatorRequest[MoneyServices, None]) -> Result:
    id = (await _visible_budget(request)).id
    return {"budget": {"id": id}, **await request.list_page(OWNERS, await owner_rows(request.services, id))}


@operator_call(
    "GET",
    "/budgets/{id}/alerts",
    VIEW_COSTS,
    "List the alerts of a budget",
    lists=ALERTS,
    item=AlertItem,
    shows=SLICED,
    in_turn=True,
)
async def list_alerts(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    List the alerts of a budget.

    People with limited data access see only the alerts of the budget's current rules and view.
    """
    budget = await _visible_budget(request)
    if request.has_limited_data_access:
        budget_alerts = await current_alerts(request.services, budget)
    else:
        budget_alerts = await request.registry.declared_table(BudgetTable).alerts_of_budget(budget.id)
    return {"budget": {"id": budget.id}, **await request.list_page(ALERTS, alert_rows(budget_alerts))}


async def _visible_budget(request: OperatorRequest[MoneyServices, None]) -> SpendBudget:
    budget = request.registry.declared_table(BudgetTable).get(request.path_parameter("id"))
    if not (await request.cost_reader.read_visibility()).can_see_budget(budget):
        raise NotThere("there is no budget with this id")
    return budget
