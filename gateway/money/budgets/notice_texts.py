"""
The texts about budgets: the notice of a crossed threshold, and the insight while a threshold is crossed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from gateway.money.budgets.alerts import AlertNotice
from gateway.money.budgets.declared import ACTUAL, CORRECTED, COST, FINDER, FORECAST, Alert, SpendBudget
from gateway.money.budgets.figures import BudgetFigures, OwnerSpend, PeriodFigures
from gateway.money.budgets.forecast import Forecast
from gateway.money.insights.findings import build_finding, format_money, printable_name
from spool import money as units
from spool.currencies import SCALE
from spool.ledger.dimensions import PAID_COST
from spool.money import unconverted_amounts_sentence
from spool.record import CURRENCY
from spool.registry.insights import LOW, CallFilter, Finding
from spool.registry.notices import CRITICAL, INFO, WARNING, Notice

CATEGORY = "budget"
CROSSED, EXPECTED, TAKEN_BACK = "budget.threshold_crossed", "budget.forecast_crossed", "budget.corrected"
_KINDS = {ACTUAL: CROSSED, FORECAST: EXPECTED}
_NAMED_OWNERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedOwner:
    """
    An owner above a threshold in the running period. `alert` is that of the highest threshold that fired.
    """

    owner: str
    spent: OwnerSpend | None
    limit: int
    alert: Alert


def format_budget_amount(budget: SpendBudget, value: int) -> str:
    """Format an amount for people: money to the cent, or a number of tokens, calls or units of a meter."""
    exact = Decimal(units.units_to_text(value))
    if budget.measure != COST:
        return f"{exact:,.0f} {budget.measure.replace('_', ' ')}"
    return format_money(exact) if budget.currency == CURRENCY else f"{exact:,.2f} {budget.currency}"


def build_crossing_notice(
    figures: BudgetFigures,
    period: PeriodFigures,
    owner: str,
    alert_notice: AlertNotice,
    *,
    id: str,
    now: float,
    link: str = "",
) -> Notice:
    """Build the notice of one crossing. `id` is the same in repeated evaluations."""
    budget = figures.budget
    spent = period.spent.get(owner)
    value = format_budget_amount(budget, alert_notice.value)
    limit = format_budget_amount(budget, alert_notice.limit)
    budget_name = _budget_and_owner(budget, owner)
    is_late = period.period.is_over(now)
    if alert_notice.state == CORRECTED:
        kind, severity = TAKEN_BACK, INFO
        title = f"Budget {budget_name} is below {alert_notice.percent} % again: {value} of {limit}"
        text = "The earlier sum was too high, because late duplicates were recognized or prices changed."
        if budget.cost_type_mask:
            text = "A newer bill states less than the earlier bill."
    elif alert_notice.kind == FORECAST:
        kind, severity = EXPECTED, WARNING
        title = f"Budget {budget_name} is expected to reach {alert_notice.percent} %: {value} of {limit}"
        text = f"At the recent rate, the period that began on {period.period.first_day} will reach {value}."
    else:
        kind = CROSSED
        severity = CRITICAL if alert_notice.percent >= 100 else WARNING
        title = f"Budget {budget_name} passed {alert_notice.percent} %: {value} of {limit}"
        measured = (
            f"provider bills for the view ({budget.cost_type})"
            if budget.cost_type_mask
            else "the calls of the view"
        )
        if budget.cost_type == PAID_COST:
            measured = "the calls and the seats of the view"
        text = f"Since {period.period.first_day}, {measured} came to {value}."
    if is_late:
        text += f" The period is over; late {'bills' if budget.cost_type_mask else 'calls'} crossed the threshold."
    return Notice(
        id=id,
        kind=kind,
        title=title,
        at=now,
        text=" ".join([text, *_missing_cost_sentences(budget, spent)]),
        fields={
            "budget": budget.name,
            "view": figures.view.name if figures.view else "",
            **(
                {"owner": printable_name(owner), "per": printable_name(figures.per_label)}
                if budget.per
                else {}
            ),
            "period": f"{budget.granularity} from {period.period.first_day} ({budget.time_zone})",
            "threshold": f"{alert_notice.percent} %",
            ("forecast" if alert_notice.kind == FORECAST else "actual"): units.units_to_text(
                alert_notice.value
            ),
            "planned": units.units_to_text(alert_notice.limit),
            **({} if budget.currency == CURRENCY else {"currency": budget.currency}),
        },
        severity=severity,
        link=link,
        thread=f"budget:{budget.id}:{period.period.first_day}",
    )


def build_budget_finding(figures: BudgetFigures, crossed: Sequence[CrossedOwner]) -> Finding | None:
    """
    Build the insight of a budget that is above a threshold or cannot be evaluated. Return None for other budgets.
    """
    budget = figures.budget
    if figures.problem is not None:
        return build_finding(
            FINDER,
            (budget.id, "problem"),
            title=f"Budget {printable_name(budget.name)} is not evaluated",
            seen=figures.problem,
            advice="Fix the view or the budget. Until then, the budget fires no alert.",
            category=CATEGORY,
            effort=LOW,
        )
    if not crossed:
        return None
    period = figures.periods[0]
    excess = sum(
        max(0, (crossing.spent.actual if crossing.spent else 0) - crossing.limit) for crossing in crossed
    )
    return build_finding(
        FINDER,
        (budget.id,),
        title=_finding_title(figures, crossed),
        seen=" ".join(_owner_lines(budget, period, crossed)),
        advice=(
            "Look at the spend of the view, and at its models and teams. To allow more, change the "
            "amount of the budget. Tollhouse never blocks a call. To block calls, set a limit at the "
            "provider or the gateway."
        ),
        category=CATEGORY,
        effort=LOW,
        impact=Decimal(units.units_to_text(excess * (figures.rate or 0) // SCALE))
        if budget.measure == COST
        else Decimal(0),
        newest=max(crossing.alert.fired_at or crossing.alert.since for crossing in crossed),
        concerns=CallFilter(include=view.include, exclude=view.exclude) if (view := figures.view) else None,
    )


def _finding_title(figures: BudgetFigures, crossed: Sequence[CrossedOwner]) -> str:
    budget = figures.budget
    if budget.per:
        return (
            f"Budget {printable_name(budget.name)}: {len(crossed)} of {printable_name(figures.per_label)} "
            "past a threshold"
        )
    [crossing] = crossed
    verb = "is expected to pass" if crossing.alert.kind == FORECAST else "is past"
    return (
        f"Budget {printable_name(budget.name)} {verb} {crossing.alert.percent} % of "
        f"{format_budget_amount(budget, crossing.limit)}"
    )


def _owner_lines(budget: SpendBudget, period: PeriodFigures, crossed: Sequence[CrossedOwner]) -> list[str]:
    lines = [f"since {period.period.first_day}:"]
    for crossing in crossed[:_NAMED_OWNERS]:
        spent = format_budget_amount(budget, crossing.spent.actual if crossing.spent else 0)
        owner_text = f"{printable_name(crossing.owner)} " if budget.per else ""
        lines.append(f"{owner_text}{spent} of {format_budget_amount(budget, crossing.limit)};")
        expected = period.forecasts.get(crossing.owner)
        if isinstance(expected, Forecast):
            lines.append(f"expected {format_budget_amount(budget, expected.total)};")
    if len(crossed) > _NAMED_OWNERS:
        lines.append(f"and {len(crossed) - _NAMED_OWNERS} more;")
    return [*lines[:-1], lines[-1].rstrip(";") + ".", *_missing_cost_sentences(budget, period.total_spend)]


def _missing_cost_sentences(budget: SpendBudget, spent: OwnerSpend | None) -> list[str]:
    if budget.measure != COST or spent is None:
        return []
    sentences = []
    if spent.unpriced:
        sentences.append(
            f"{spent.unpriced:,} of {spent.calls:,} calls have no price, so the true cost is higher."
        )
    if spent.unconverted:
        sentences.append(f"{unconverted_amounts_sentence(spent.unconverted, budget.currency)}.")
    return sentences


def _budget_and_owner(budget: SpendBudget, owner: str) -> str:
    return (
        f"{printable_name(budget.name)} of {printable_name(owner)}"
        if budget.per
        else printable_name(budget.name)
    )
