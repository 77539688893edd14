"""What the running period of any question will come to, day by day, as budgets forecast theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from gateway.money.budgets.figures import HOURS_DAYS
from gateway.money.budgets.forecast import (
    PERIODS_BACK,
    WINDOW_DAYS,
    Forecast,
    History,
    TooEarly,
    forecast,
    past_errors,
    widened,
)
from gateway.money.budgets.periods import BudgetPeriod, days_of, period_at, periods_before
from spool.ledger import money
from spool.ledger.queries import TOTAL, CostQuery, CostRow


class AnswersHours(Protocol):
    """A ledger, or what somebody may see of one."""

    async def costs(self, query: CostQuery) -> Sequence[CostRow]: ...

    async def since_hours(self, since: datetime) -> datetime: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDay:
    """
    What is expected of a day that is not over, in units of money. Today has what is spent of it already. Bounds are
    as far away as those of the period, for its share of what is left.
    """

    first_day: str
    amount: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """`made` is of the whole period, `days` are those from today on: with what was spent they are its sum."""

    period: BudgetPeriod
    actual: int
    made: Forecast | TooEarly
    days: Sequence[ExpectedDay] = ()


async def outlook(ledger: AnswersHours, query: CostQuery, granularity: str, now: float) -> Outlook:
    """The forecast of the running period of `query.zone`; the filters of the question hold, its span does not."""
    period = period_at(now, granularity, query.zone)
    before = periods_before(period, granularity, query.zone, PERIODS_BACK)
    midnight = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = min(before[-1].start, midnight - timedelta(days=WINDOW_DAYS))

    async def sums(since: datetime, until: datetime, per: str, query: CostQuery) -> Sequence[CostRow]:
        asked = replace(
            query, since=since, until=until, granularity=per, group_by=(), measures=("calls",), kept=None
        )
        return await ledger.costs(asked) if since < until else []

    in_utc = replace(query, zone=UTC)
    hourly = await sums(
        await ledger.since_hours(midnight - timedelta(days=HOURS_DAYS)), midnight, "hourly", in_utc
    )
    days = await sums(first.replace(hour=0, minute=0), midnight, "daily", in_utc)
    running = await sums(period.start, period.end, TOTAL, query)
    today = [day for day in days_of(period, query.zone) if not day.is_over(now)]
    spent = await sums(today[0].start, today[0].end, TOTAL, query)
    return await asyncio.to_thread(
        _outlook, period, before, _by_day(days), _by_hour(hourly), _cost(running), _cost(spent), today, now
    )


def _outlook(
    period: BudgetPeriod,
    before: Sequence[BudgetPeriod],
    days: dict[date, int],
    hours: tuple[int, ...],
    actual: int,
    spent_today: int,
    left: Sequence[BudgetPeriod],
    now: float,
) -> Outlook:
    known = History(days=days, hours=hours)
    at = datetime.fromtimestamp(now, UTC)
    until = [forecast(known, start=period.start, end=day.end, now=at, actual=actual) for day in left]
    made = until[-1]
    if isinstance(made, TooEarly):
        return Outlook(period=period, actual=actual, made=made)
    errors = past_errors(known, [(each.start, each.end) for each in before], elapsed=period.elapsed(now))
    wide = widened(made, errors, actual=actual)
    left_over = max(1, made.total - actual)
    found, was = [], actual
    for day, here in zip(left, until, strict=True):
        amount = max(0, here.total - was) if isinstance(here, Forecast) else 0
        base = spent_today if day is left[0] else 0
        found.append(
            ExpectedDay(
                first_day=day.first_day,
                amount=base + amount,
                low=base + amount - amount * (made.total - wide.low) // left_over,
                high=base + amount + amount * (wide.high - made.total) // left_over,
            )
        )
        was += amount
    return Outlook(period=period, actual=actual, made=wide, days=found)


def _cost(rows: Sequence[CostRow]) -> int:
    return sum(money.units(row.cost) for row in rows)


def _by_day(rows: Sequence[CostRow]) -> dict[date, int]:
    return {row.start.date(): money.units(row.cost) for row in rows}


def _by_hour(rows: Sequence[CostRow]) -> tuple[int, ...]:
    found = [0] * 24
    for row in rows:
        found[row.start.hour] += money.units(row.cost)
    return tuple(found)
