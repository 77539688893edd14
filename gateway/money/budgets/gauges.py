"""The gauges of the last evaluation. Their values are for graphs: to the precision of a float."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.money.budgets.declared import COST
from gateway.money.budgets.figures import BudgetFigures
from gateway.money.budgets.forecast import Forecast
from gateway.money.budgets.judging import limit_of
from gateway.service.monitoring.snapshot import BudgetGauge
from spool.ledger import money

MAX_OWNERS = 200  # of a budget with series of their own: every new one costs the monitoring memory for good


def gauges(figures: Iterable[BudgetFigures]) -> Iterator[BudgetGauge]:
    """Yield a gauge for each budget without owners, and for each owner of budgets with few."""
    for each in figures:
        if not each.periods or each.view is None:
            continue
        budget = each.budget
        running = each.periods[0]
        limit = limit_of(budget, running)
        owners = running.spent if budget.per else ("",)
        if len(owners) > MAX_OWNERS:
            continue
        for owner in owners:
            spent = running.spent.get(owner)
            actual = spent.actual if spent else 0
            expected = running.forecasts.get(owner)
            is_money = budget.measure == COST
            yield BudgetGauge(
                budget=budget.name,
                view=each.view.name,
                owner=owner,
                spent=actual / money.UNIT if is_money else None,
                limit=limit / money.UNIT if is_money and limit is not None else None,
                forecast=expected.total / money.UNIT if is_money and isinstance(expected, Forecast) else None,
                ratio=actual / limit if limit else None,
            )
