"""The state of a budget: whether its spend is within the amount. Each interface shows this state. Pure."""

from __future__ import annotations

from gateway.money.budgets.declared import enabled_percents
from gateway.money.budgets.figures import BudgetFigures
from gateway.money.budgets.judging import planned_limit

NOT_EVALUATED, NOT_EVALUATED_YET, NO_AMOUNT = "not_evaluated", "not_evaluated_yet", "no_amount"
OVER, OVER_THRESHOLD, WITHIN = "over", "over_threshold", "within"


def state_of_budget(problem: str | None, figures: BudgetFigures | None) -> str:
    """
    Return the state of a budget in its running period. For a budget with owners, this is the state of the
    owner who spent most. `figures` is None until the budget has been evaluated with its current rules.
    """
    if problem is not None:
        return NOT_EVALUATED
    if figures is None or not figures.periods:
        return NOT_EVALUATED_YET
    limit = planned_limit(figures.budget, figures.periods[0])
    if limit is None:
        return NO_AMOUNT
    actual = highest_owner_spend(figures)
    if actual > 0 and actual >= limit:
        return OVER
    is_crossed = any(actual * 100 >= percent * limit for percent in enabled_percents(figures.budget.alerts))
    return OVER_THRESHOLD if actual > 0 and is_crossed else WITHIN


def highest_owner_spend(figures: BudgetFigures) -> int:
    """Return the spend of the owner who spent most in the running period."""
    return max((spent.actual for spent in figures.periods[0].spent.values()), default=0)
