"""Budgets, their owners and their alerts, as every list and answer shows them, to keys and to operators alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.http.holders.money import MoneyServices
from gateway.http.lists import Filter, List, MemoryRows, Sort, yes_no
from gateway.http.resources.declaration import answer
from gateway.money.budgets.declared import (
    ACTUAL,
    CURRENT,
    FIRED,
    FORECAST,
    GRANULARITIES,
    KINDS,
    MEASURES,
    STATES,
    Alert,
    AlertItem,
    BudgetItem,
    BudgetTable,
    OwnerItem,
    PeriodAlerts,
    SpendBudget,
)
from gateway.money.budgets.evaluator import BudgetEvaluator
from gateway.money.budgets.expansion import forecast_text, percent_of
from gateway.money.budgets.figures import BudgetFigures, BudgetLedger, Spent, problem_of
from gateway.money.budgets.forecast import Forecast, TooEarly
from gateway.money.budgets.judging import limit_of, rules_digest
from gateway.money.costs.times import seconds
from gateway.service.schemas import TEXT, closed
from spool.ledger import money
from spool.meters import METERS
from spool.record import moment

_NO_PERCENT = -1  # sorts before every percent


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBudget:
    """
    `percent` is of the last evaluation, of the owner that is furthest; None without an amount, and before an
    evaluation of the rules and the view as they are.
    """

    budget: SpendBudget
    problem: str | None
    percent: int | None
    per_label: str  # how people read `per`
    billed_through: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRow:
    """An owner in the running period; "" is unknown, and the one of a budget without owners."""

    budget: SpendBudget
    owner: str
    spent: Spent
    limit: int | None
    forecast: Forecast | TooEarly | None
    fired: list[int]

    @property
    def percent(self) -> int | None:
        return percent_of(self.spent.actual, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    owner: str
    first_day: str
    alert: Alert


def describe_budget(row: ShownBudget) -> dict[str, object]:
    budget = row.budget
    planned = {day: {"amount": amount} for day, amount in budget.planned.items()}
    return answer(
        BudgetItem,
        budget,
        view={"id": budget.view_id},
        planned_limits={budget.granularity: planned},
        created=seconds(budget.created),
        last_updated=seconds(budget.last_updated),
        default_amount=budget.default_amount or None,
        per=budget.per or None,
        per_label=row.per_label or None,
        silence=_silence(budget),
        problem=row.problem,
        percent=row.percent,
        billed_through=row.billed_through,
    )


def _silence(budget: SpendBudget) -> dict[str, object] | None:
    if not budget.silent_until:
        return None
    return {"until": moment(budget.silent_until), "reason": budget.silent_reason}


def describe_owner(row: OwnerRow) -> dict[str, object]:
    return answer(
        OwnerItem,
        row,
        owner=row.owner or None,
        actual=money.text(row.spent.actual),
        planned=None if row.limit is None else money.text(row.limit),
        forecast=forecast_text(row.budget, row.forecast),
        calls=row.spent.calls,
        unpriced_calls=row.spent.unpriced,
        unconverted=row.spent.unconverted,
    )


def describe_alert(row: AlertRow) -> dict[str, object]:
    alert = row.alert
    return answer(
        AlertItem,
        alert,
        period=row.first_day,
        owner=row.owner or None,
        since=seconds(alert.since),
        fired_at=None if alert.fired_at is None else seconds(alert.fired_at),
        planned=alert.limit,
        corrected_at=None if alert.corrected_at is None else seconds(alert.corrected_at),
    )


BUDGETS: List[ShownBudget] = List(
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
        # What more is shown of each budget: no row is left out, and cursors keep it.
        "expand": Filter(values=lambda row: (CURRENT, FORECAST), valid_values=(CURRENT, FORECAST)),
    },
)

OWNERS: List[OwnerRow] = List(
    root="owners",
    show=describe_owner,
    identity=Sort(value=lambda row: row.owner),
    sorts={
        "actual": Sort(value=lambda row: row.spent.actual / money.UNIT),  # to sort by; what is shown is exact
        "owner": Sort(value=lambda row: row.owner),
        "percent": Sort(value=lambda row: _NO_PERCENT if row.percent is None else row.percent),
    },
    default_sort=("actual", "desc"),
    filters={
        "owner": Filter(values=lambda row: (row.owner,), names_people=True),
        "is_past": yes_no(lambda row: row.fired),
    },
    beside={"budget": closed({"id": TEXT})},
)

ALERTS: List[AlertRow] = List(
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
    beside={"budget": closed({"id": TEXT})},
)


def add_state(money: MoneyServices, budget: SpendBudget) -> ShownBudget:
    view = money.require_registry().views.find(budget.view_id)
    problem = problem_of(budget, view, money.ledger.dimensions())
    evaluated = money.require_budgets().figures.get(budget.id)
    rules = rules_digest(budget, view)
    is_current = evaluated is not None and rules_digest(evaluated.budget, evaluated.view) == rules
    return ShownBudget(
        budget=budget,
        problem=problem,
        percent=_furthest(evaluated) if is_current else None,
        billed_through=evaluated.billed_through if evaluated is not None and is_current else None,
        per_label=money.ledger.label(budget.per),
    )


async def owner_rows(money: MoneyServices, id: str) -> MemoryRows[OwnerRow]:
    """NotThere if there is no such budget. None while it has a problem."""
    figures = await fresh(money, evaluator(money).books(), id)
    if not figures.periods:
        return MemoryRows([])
    budget = figures.budget
    running = figures.periods[0]
    fired: dict[str, list[int]] = {}
    for period in await alerts_of_now(money, budget):
        if period.first_day == running.period.first_day:
            for owner, alerts in period.owners.items():
                told = [alert for alert in alerts if alert.kind == ACTUAL and alert.state == FIRED]
                fired[owner] = [alert.percent for alert in told]
    return MemoryRows(
        [
            OwnerRow(
                budget=budget,
                owner=owner,
                spent=spent,
                limit=limit_of(budget, running),
                forecast=running.forecasts.get(owner),
                fired=fired.get(owner, []),
            )
            for owner, spent in running.spent.items()
        ]
    )


def alert_rows(kept: Sequence[PeriodAlerts]) -> MemoryRows[AlertRow]:
    return MemoryRows(
        [
            AlertRow(owner=owner, first_day=period.first_day, alert=alert)
            for period in kept
            for owner, alerts in period.owners.items()
            for alert in alerts
        ]
    )


async def alerts_of_now(money: MoneyServices, budget: SpendBudget) -> Sequence[PeriodAlerts]:
    """Return the alerts of periods that were judged by the present rules and view: others are about other calls."""
    registry = money.require_registry()
    rules = rules_digest(budget, registry.views.find(budget.view_id))
    return [period for period in await registry.table(BudgetTable).alerts(budget.id) if period.rules == rules]


async def fresh(money: MoneyServices, books: BudgetLedger, id: str) -> BudgetFigures:
    """The figures of a budget now; NotThere if there is none."""
    registry = money.require_registry()
    budget = registry.table(BudgetTable).get(id)
    return await books.figures(budget, registry.views.find(budget.view_id))


def evaluator(money: MoneyServices) -> BudgetEvaluator:
    return money.require_budgets()


def _furthest(figures: BudgetFigures | None) -> int | None:
    if figures is None or not figures.periods:
        return None
    running = figures.periods[0]
    limit = limit_of(figures.budget, running)
    return percent_of(max((each.actual for each in running.spent.values()), default=0), limit)
