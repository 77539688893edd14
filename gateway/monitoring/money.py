"""Budgets, and the comparison with bills, as `/metrics` shows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGauge:
    """
    One owner of a budget, "" without owners, by the last evaluation. Dollars are None of budgets of tokens or
    calls, and where there is no amount or no forecast.
    """

    budget: str
    view: str
    owner: str
    spent: float | None
    limit: float | None
    forecast: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledRatio:
    """
    What was counted, of what a provider billed: `measure` is tokens or money. 1 is everything, above it too much.
    """

    provider: str
    measure: str
    ratio: float
