"""
Optional sections of a budget: the running period, its history, the spend by day (burnup), and a forecast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from gateway.money.budgets.declared import (
    BURNUP,
    COST,
    CURRENT,
    DAILY,
    FORECAST,
    HISTORY,
    MONTHLY,
    QUARTERLY,
    WEEKLY,
    YEARLY,
    SpendBudget,
)
from gateway.money.budgets.figures import BudgetFigures, BudgetLedger, OwnerSpend, PeriodFigures
from gateway.money.budgets.forecast import (
    PERIODS_BACK,
    WINDOW_DAYS,
    Forecast,
    History,
    TooEarly,
    past_errors,
    widen_by_errors,
)
from gateway.money.budgets.judging import planned_limit
from gateway.money.budgets.periods import BudgetPeriod, days_in_period, period_at, periods_before
from spool import money
from spool.record import format_to_second
from spool.registry.views import SavedView

# granularity -> number of past periods that are shown; a monthly budget shows the months of four quarters
_PERIODS = {DAILY: 31, WEEKLY: 13, QUARTERLY: 8, YEARLY: 5}
_QUARTERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    budget: SpendBudget
    view: SavedView


async def read_requested_sections(
    budget_ledger: BudgetLedger, figures: BudgetFigures, expansions: frozenset[str]
) -> dict[str, object]:
    """Return the requested sections by name. A section is null while the budget has a problem."""
    if figures.view is None or not figures.periods:
        return dict.fromkeys(sorted(expansions))
    budget_view = BudgetView(budget=figures.budget, view=figures.view)
    sections: dict[str, object] = {}
    if CURRENT in expansions:
        sections[CURRENT] = describe_current(figures)
    if HISTORY in expansions:
        sections[HISTORY] = await spend_history(budget_ledger, budget_view)
    if BURNUP in expansions:
        sections[BURNUP] = await daily_burnup(budget_ledger, budget_view, figures.periods[0])
    if FORECAST in expansions:
        sections[FORECAST] = await forecast_all_owners(budget_ledger, budget_view, figures.periods[0])
    return sections


def describe_current(figures: BudgetFigures) -> dict[str, object]:
    """
    Describe the running period. For a budget with owners, `actual` is the sum over all owners, and
    `planned` is null.
    """
    budget = figures.budget
    running = figures.periods[0]
    total = running.total_spend
    limit = planned_limit(budget, running)
    answer: dict[str, object] = {
        "actual": money.units_to_text(total.actual),
        "planned": None if budget.per or limit is None else money.units_to_text(limit),
        "percent": None if budget.per else percent_of_limit(total.actual, limit),
        "start": _format_time(running.period.start),
        "end": _format_time(running.period.end),
        "calls": total.calls,
        "unpriced_calls": total.unpriced,
        "unconverted": total.unconverted,
        "is_whole": running.is_whole,
    }
    if budget.per:
        past_count = limit is not None and sum(
            owner_spend.actual > 0 and owner_spend.actual >= limit for owner_spend in running.spent.values()
        )
        answer["owners"] = {
            "count": len(running.spent),
            "past": int(past_count),
            "left_out": running.owners_left_out,
        }
    return answer


def percent_of_limit(actual: int, limit: int | None) -> int | None:
    """Return the whole percentage of the limit, rounded down, or None without a limit."""
    return actual * 100 // limit if limit else None


async def spend_history(budget_ledger: BudgetLedger, budget_view: BudgetView) -> dict[str, dict[str, object]]:
    """
    Return the running period and the periods before it, by granularity and first day.

    `actual` is null if the zone is not UTC and only daily totals of the period are still stored.
    """
    budget = budget_view.budget
    running = period_at(budget_ledger.now, budget.granularity, budget.zone)
    if budget.granularity != MONTHLY:
        periods = [
            running,
            *periods_before(running, budget.granularity, budget.zone, _PERIODS[budget.granularity] - 1),
        ]
        return {
            budget.granularity: _describe_periods(
                budget, periods, await _spend_by_period(budget_ledger, budget_view, periods)
            )
        }
    quarter = period_at(budget_ledger.now, QUARTERLY, budget.zone)
    quarters = [quarter, *periods_before(quarter, QUARTERLY, budget.zone, _QUARTERS - 1)]
    months = [running]
    while months[-1].start > quarters[-1].start:
        months += periods_before(months[-1], MONTHLY, budget.zone, 1)
    spent = await _spend_by_period(budget_ledger, budget_view, months)
    monthly = _describe_periods(budget, months, spent)
    return {MONTHLY: monthly, QUARTERLY: _describe_quarters(budget, quarters, months, spent)}


async def daily_burnup(
    budget_ledger: BudgetLedger, budget_view: BudgetView, running: PeriodFigures
) -> dict[str, dict[str, dict[str, object]]]:
    """
    Return the accumulated spend and an even share of the amount, for each day of the running period until today.
    """
    budget = budget_view.budget
    days = days_in_period(running.period, budget.zone)
    limit = None if budget.per else planned_limit(budget, running)
    period = running.period
    sums = await budget_ledger.spend_by_period(
        budget, budget_view.view, period.start, period.end, DAILY, by_owner=False
    )
    accumulated: dict[str, dict[str, object]] = {}
    spent = 0
    for number, day in enumerate(days, start=1):
        if day.start.timestamp() > budget_ledger.now:
            break
        day_spent = sums.get((day.start, ""))
        spent += day_spent.actual if day_spent else 0
        planned = (
            None if limit is None else format_amount_rounded_down(budget.measure, limit * number // len(days))
        )
        accumulated[day.first_day] = {"actual": money.units_to_text(spent), "planned": planned}
    return {DAILY: accumulated}


async def forecast_all_owners(
    budget_ledger: BudgetLedger, budget_view: BudgetView, current_figures: PeriodFigures
) -> dict[str, object]:
    """
    Forecast the spend of all owners together. The bounds are as wide as the errors of earlier forecasts.
    """
    budget = budget_view.budget
    period = current_figures.period
    earlier_periods = periods_before(period, budget.granularity, budget.zone, PERIODS_BACK)
    at = await budget_ledger.known_until(budget)
    back = int((budget_ledger.now - earlier_periods[-1].start.timestamp()) // 86400) + WINDOW_DAYS + 1
    days = (await budget_ledger.daily_spend_by_owner(budget, budget_view.view, back, by_owner=False)).get(
        "", {}
    )
    known = History(days=days, hours=await budget_ledger.spend_by_hour(budget, budget_view.view))
    total = current_figures.total_spend
    forecast = budget_ledger.forecast_period(period, known, total, at)
    if isinstance(forecast, TooEarly):
        return {"total": None, "low": None, "high": None, "reason": forecast.reason, "past_errors": {}}
    errors = {
        earlier_period.first_day: error[0]
        for earlier_period in earlier_periods
        if (
            error := past_errors(
                known, [(earlier_period.start, earlier_period.end)], elapsed=period.elapsed_share(at)
            )
        )
    }
    widened_forecast = widen_by_errors(forecast, list(errors.values()), actual=total.actual)
    return {
        "total": format_amount_rounded_down(budget.measure, widened_forecast.total),
        "low": format_amount_rounded_down(budget.measure, widened_forecast.low),
        "high": format_amount_rounded_down(budget.measure, widened_forecast.high),
        "reason": None,
        # `error` is in hundredths of a percent, and the API states percent
        "past_errors": {day: f"{error / 100:.1f}" for day, error in errors.items()},
    }


def forecast_text(budget: SpendBudget, prediction: Forecast | TooEarly | None) -> str | None:
    return (
        format_amount_rounded_down(budget.measure, prediction.total)
        if isinstance(prediction, Forecast)
        else None
    )


def format_amount_rounded_down(budget_measure: str, amount: int) -> str:
    """Round an estimated amount down to whole cents, tokens or calls."""
    step = money.UNIT // 100 if budget_measure == COST else money.UNIT
    return money.units_to_text(amount // step * step)


async def _spend_by_period(
    budget_ledger: BudgetLedger, budget_view: BudgetView, periods: list[BudgetPeriod]
) -> Mapping[str, int | None]:
    """Return the spend of each period by its first day. `periods` are consecutive, the newest first."""
    budget = budget_view.budget
    since = periods[-1].start
    until = periods[0].end
    is_utc = all(
        period.start.astimezone(budget.zone).utcoffset() == period.start.utcoffset() for period in periods
    )
    hourly_since = since if is_utc else await budget_ledger.ledger.earliest_moment_with_hourly_sums(since)
    first = min((period.start for period in periods if period.start >= hourly_since), default=until)
    sums = await budget_ledger.spend_by_period(
        budget, budget_view.view, first, until, budget.granularity, by_owner=False
    )
    return {
        period.first_day: _actual_or_zero(sums.get((period.start, ""))) if period.start >= first else None
        for period in periods
    }


def _actual_or_zero(spent: OwnerSpend | None) -> int:
    return spent.actual if spent else 0


def _describe_periods(
    budget: SpendBudget, periods: list[BudgetPeriod], spent: Mapping[str, int | None]
) -> dict[str, object]:
    return {
        period.first_day: _actual_and_planned(spent[period.first_day], _planned_units(budget, period))
        for period in reversed(periods)
    }


def _describe_quarters(
    budget: SpendBudget,
    quarters: list[BudgetPeriod],
    months: list[BudgetPeriod],
    spent: Mapping[str, int | None],
) -> dict[str, object]:
    """Sum the months of each quarter. If a month has no amount, the quarter's amount is None."""
    shown: dict[str, object] = {}
    for quarter in reversed(quarters):
        months_so_far = [month for month in months if quarter.start <= month.start < quarter.end]
        last_month = period_at(quarter.end.timestamp() - 1, MONTHLY, budget.zone)
        planned = [
            _planned_units(budget, month)
            for month in (last_month, *periods_before(last_month, MONTHLY, budget.zone, 2))
        ]
        actual = [spent[month.first_day] for month in months_so_far]
        shown[quarter.first_day] = _actual_and_planned(_sum_if_all_known(actual), _sum_if_all_known(planned))
    return shown


def _planned_units(budget: SpendBudget, period: BudgetPeriod) -> int | None:
    amount = "" if budget.per else budget.amount_for_period(period.first_day)
    return money.text_to_units(amount) if amount else None


def _sum_if_all_known(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _actual_and_planned(actual: int | None, planned: int | None) -> dict[str, object]:
    return {
        "actual": None if actual is None else money.units_to_text(actual),
        "planned": None if planned is None else money.units_to_text(planned),
    }


def _format_time(moment: datetime) -> str | None:
    return format_to_second(moment.timestamp())
