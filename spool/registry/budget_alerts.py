"""What became of the thresholds of a budget in one period, by owner. Values; the rules are in gateway.money.budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spool.registry.shared.documents import DocumentKind

ACTUAL, FORECAST = "actual", "forecast"
KINDS = (ACTUAL, FORECAST)
PENDING, FIRED, CORRECTED, CLEARED = "pending", "fired", "corrected", "cleared"
STATES = (PENDING, FIRED, CORRECTED, CLEARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """
    A threshold that was met: a percent of the amount, by what was spent or by its forecast.

    `since` is when the state began, `fired_at` None while it is pending. `value` and `limit` are decimal text
    of the moment that it fired or began to wait. `told`: a notice was stored. `corrected_at`: the notice that
    it is not met any more, which is sent once. `below_since`: of a forecast that fired.
    """

    kind: str
    percent: int
    state: str
    since: float
    value: str
    limit: str
    fired_at: float | None = None
    told: bool = False
    corrected_at: float | None = None
    below_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodAlerts:
    """
    Of one budget and the period that begins on `first_day` and ends at `end` (epoch seconds).

    `rules` is a digest of the rules that they were judged by. `owners` has those with an alert; a budget
    without owners has "".
    """

    budget_id: str
    first_day: str
    end: float
    rules: str
    owners: Mapping[str, tuple[Alert, ...]]

    @property
    def id(self) -> str:
        return f"{self.budget_id}.{self.first_day}"


BUDGET_ALERTS = DocumentKind("budget_alerts", PeriodAlerts, "budget's alerts")
