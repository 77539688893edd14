"""Periods of a budget in the wall clock time of its zone, so a day with a clock change has 23 or 25 hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import pairwise

from gateway.money.budgets.declared import SpendBudget
from spool.ledger.periods import next_beginning, period_beginning

LATE_S = (
    3 * 86400.0
    # The seconds after the end of a period in which alerts can still fire for it, because a late call counts
    # in the period in which the call started.
)
# LATE_S for budgets of billed costs: longer, because bills arrive days after the usage
BILLED_LATE_S = 14 * 86400.0
# seconds from the start of a period in which a forecast raises no alert; at most a tenth of the period
FORECAST_AFTER_S = 3 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPeriod:
    """A period from `start` until before `end` (UTC). `first_day` is its first day in the zone."""

    start: datetime
    end: datetime
    first_day: str

    def is_over(self, now: float) -> bool:
        return now >= self.end.timestamp()

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    def elapsed_share(self, now: float) -> float:
        return min(1.0, max(0.0, (now - self.start.timestamp()) / self.seconds))

    def can_forecast_alert(self, now: float) -> bool:
        """Return whether a forecast may fire an alert: enough of the period has passed, but not all of it."""
        spent_s = now - self.start.timestamp()
        return not self.is_over(now) and spent_s >= min(FORECAST_AFTER_S, self.seconds / 10)


def period_at(now: float, granularity: str, zone: tzinfo) -> BudgetPeriod:
    return _period_from_start(
        period_beginning(datetime.fromtimestamp(now, UTC).astimezone(zone), granularity), granularity
    )


def periods_before(period: BudgetPeriod, granularity: str, zone: tzinfo, count: int) -> list[BudgetPeriod]:
    """Return the `count` periods before this one, newest first."""
    earlier_periods = []
    for _ in range(count):
        period = period_at(period.start.timestamp() - 1, granularity, zone)
        earlier_periods.append(period)
    return earlier_periods


def judged_periods(budget: SpendBudget, now: float) -> list[BudgetPeriod]:
    """
    Return the running period, and finished periods that can still fire alerts.

    Such a finished period ended at most LATE_S ago (BILLED_LATE_S for billed money), and after the last
    change of the budget's rules.
    """
    late_s = BILLED_LATE_S if budget.cost_type_mask else LATE_S
    running = period_at(now, budget.granularity, budget.zone)
    late = periods_before(running, budget.granularity, budget.zone, int(late_s // 86400) + 1)
    since = max(now - late_s, budget.rules_since)
    return [running, *(period for period in late if period.end.timestamp() > since)]


def days_in_period(period: BudgetPeriod, zone: tzinfo) -> list[BudgetPeriod]:
    edges = [period.start.astimezone(zone)]
    while edges[-1].astimezone(UTC) < period.end:
        edges.append(next_beginning(edges[-1], "daily"))
    return [_period_between(start, end) for start, end in pairwise(edges)]


def _period_from_start(start: datetime, granularity: str) -> BudgetPeriod:
    return _period_between(start, next_beginning(start, granularity))


def _period_between(start: datetime, end: datetime) -> BudgetPeriod:
    first_day = start.date().isoformat()
    return BudgetPeriod(start=start.astimezone(UTC), end=end.astimezone(UTC), first_day=first_day)
