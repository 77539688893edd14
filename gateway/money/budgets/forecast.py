"""
Forecast of the total of a running period from the totals of days, for budgets and for cost queries.

The forecast is the median of four methods, because each method fails for some kind of history. docs/money/budgets.md
lists the methods, and tests/EVIDENCE.md has their measured errors. All arithmetic uses integers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Protocol

from gateway.money.budgets.periods import BudgetPeriod, days_in_period, period_at, periods_before
from spool import money
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, CostRow

DAY = timedelta(days=1)
WINDOW_DAYS = 28  # days of history that the forecast methods read
HOURS_DAYS = 14  # days of history from which the profile of a day is computed
LEAST_DAYS = 7  # minimum days since the first spend before a forecast is made
LEVEL_DAYS = 10
# number of average days that are mixed into each weekday of the profile, so that one spike does not look like
# a habit
SHRINK_DAYS = 2
# number of earlier periods whose forecasts are computed from the data of that time, to measure the forecast error
PERIODS_BACK = 3
_PARTS = 10_000  # number of parts of a whole; shares are stored as parts of it


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Spend by complete day in UTC, and by hour of the day (24 sums). A missing day had no spend."""

    days: Mapping[date, int]
    hours: tuple[int, ...] = (1,) * 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected total of a period and its bounds, including the actual spend."""

    total: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TooEarly:
    reason: str


def forecast_total(
    history: History, *, start: datetime, end: datetime, now: datetime, actual: int
) -> Forecast | TooEarly:
    """
    Forecast the total of the period from `start` to `end`. `actual` is the spend until `now`, which is
    in the period.
    """
    today = now.astimezone(UTC).date()
    # spend by day, the newest first
    known = [history.days.get(today - DAY * back, 0) for back in range(1, WINDOW_DAYS + 1)]
    while known and not known[-1]:
        known.pop()
    if len(known) < LEAST_DAYS:
        return TooEarly(reason=f"too early for a forecast: {len(known)} of {LEAST_DAYS} days of history")
    if known.count(0) * 2 > len(known):
        return TooEarly(reason="too early for a forecast: most days spent nothing")
    remaining_days = _remaining_time_by_weekday(history.hours, now, end)
    totals = sorted(
        actual + sum(expected[weekday] * parts for weekday, parts in remaining_days.items()) // _PARTS
        for expected in _expected_spend_by_weekday_per_method(known, today, start, now, actual)
    )
    return Forecast(total=(totals[1] + totals[2]) // 2, low=totals[0], high=totals[3])


def widen_by_errors(prediction: Forecast, errors: Sequence[int], *, actual: int) -> Forecast:
    """
    Widen the bounds by the mean error of earlier forecasts (parts of 10,000). The lower bound is at least `actual`.
    """
    wrong = sum(map(abs, errors)) // len(errors) if errors else 0
    low = min(prediction.low, prediction.total - prediction.total * wrong // _PARTS)
    high = max(prediction.high, prediction.total + prediction.total * wrong // _PARTS)
    return Forecast(total=prediction.total, low=max(low, actual), high=high)


def past_errors(
    history: History, periods: Sequence[tuple[datetime, datetime]], *, elapsed: float
) -> list[int]:
    """
    Return the errors that forecasts of earlier periods would have had after the same share of the period
    (`elapsed`, 0 to 1).

    An error is in parts of 10,000 of the spend. It is negative if the forecast was too low. The errors have
    the order of `periods`. Whole days of UTC are used.
    """
    errors = []
    for start, end in periods:
        now = datetime.combine(
            (start + (end - start) * elapsed).astimezone(UTC).date(), datetime.min.time(), UTC
        )
        now = max(now, start)
        spent = _sum_days(history.days, start, end)
        until_now = _sum_days(history.days, start, now)
        prediction = forecast_total(history, start=start, end=end, now=now, actual=until_now)
        if isinstance(prediction, Forecast) and spent > 0:
            errors.append((prediction.total - spent) * _PARTS // spent)
    return errors


def _expected_spend_by_weekday_per_method(
    past_daily_spend: Sequence[int], today: date, start: datetime, now: datetime, actual: int
) -> Iterator[Mapping[int, int]]:
    """
    Yield the expected spend per day, by weekday, by each of four methods: the present rate, the newest day of
    the weekday, the weekday's median, and the weekday's usual share of the newest days' median.
    `past_daily_spend` has the spend of past days, newest first.
    """
    weekdays = [(today.weekday() - back) % 7 for back in range(1, len(past_daily_spend) + 1)]
    by_weekday: dict[int, list[int]] = {}
    for weekday, spent in zip(weekdays, past_daily_spend, strict=True):
        by_weekday.setdefault(weekday, []).append(spent)
    elapsed_s = int((now - start).total_seconds())
    # On its first day, a period has no rate of its own yet, so use the rate of the last days.
    rate = (
        actual * 86400 // elapsed_s
        if elapsed_s >= 86400
        else sum(past_daily_spend[:LEAST_DAYS]) // LEAST_DAYS
    )
    yield dict.fromkeys(by_weekday, rate)
    yield {weekday: spent[0] for weekday, spent in by_weekday.items()}
    yield {weekday: _median(spent) for weekday, spent in by_weekday.items()}
    mean = sum(past_daily_spend) // len(past_daily_spend)
    profile = {
        weekday: (sum(spent) + SHRINK_DAYS * mean) * _PARTS // ((len(spent) + SHRINK_DAYS) * mean or 1)
        for weekday, spent in by_weekday.items()
    }
    newest = list(zip(weekdays, past_daily_spend, strict=True))[:LEVEL_DAYS]
    level = _median([spent * _PARTS // (profile[weekday] or _PARTS) for weekday, spent in newest])
    yield {weekday: level * parts // _PARTS for weekday, parts in profile.items()}


@lru_cache(maxsize=64)  # cached, because all owners of a budget use the same arguments
def _remaining_time_by_weekday(
    spend_by_hour: tuple[int, ...], now: datetime, end: datetime
) -> Mapping[int, int]:
    at, end = now.astimezone(UTC), end.astimezone(UTC)
    remaining_parts = dict.fromkeys(range(7), 0)
    while at < end:
        midnight = datetime.combine(at.date() + DAY, datetime.min.time(), UTC)
        until = _share_of_day_spend_before_in_parts(spend_by_hour, end) if end < midnight else _PARTS
        remaining_parts[at.weekday()] += until - _share_of_day_spend_before_in_parts(spend_by_hour, at)
        at = midnight
    return remaining_parts


def _share_of_day_spend_before_in_parts(spend_by_hour: tuple[int, ...], moment: datetime) -> int:
    total = sum(spend_by_hour)
    if not total:
        spend_by_hour = (1,) * 24
        total = 24
    of_hour = moment.minute * 60 + moment.second
    return (
        (sum(spend_by_hour[: moment.hour]) * 3600 + spend_by_hour[moment.hour] * of_hour)
        * _PARTS
        // (total * 3600)
    )


def _sum_days(days: Mapping[date, int], start: datetime, end: datetime) -> int:
    first = start.astimezone(UTC).date()
    last = end.astimezone(UTC).date()
    return sum(days.get(first + DAY * ahead, 0) for ahead in range((last - first).days))


def _median(values: Sequence[int]) -> int:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


class HourlyCostsLedger(Protocol):
    """
    Totals that `forecast_running_period` can query by hour: all of them, or those of the calls that a person
    may see.
    """

    async def costs(self, query: CostQuery) -> Sequence[CostRow]: ...

    async def earliest_moment_with_hourly_sums(self, since: datetime) -> datetime: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDay:
    """
    The expected spend of a day that is not over, in units of money. For today, it includes the actual
    spend so far.

    The bounds are the bounds of the period, scaled to the day's share of the remaining spend.
    """

    first_day: str
    amount: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """
    The forecast of a whole period and its remaining days. `actual` plus the expected further spend of these
    days gives the total.
    """

    period: BudgetPeriod
    actual: int
    forecast: Forecast | TooEarly
    days: Sequence[ExpectedDay] = ()


async def forecast_running_period(
    ledger: HourlyCostsLedger, query: CostQuery, granularity: str, now: float
) -> Outlook:
    """
    Forecast the running period in `query.zone`. The filters of the query apply, but its time range does not.
    """
    period = period_at(now, granularity, query.zone)
    before = periods_before(period, granularity, query.zone, PERIODS_BACK)
    midnight = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = min(before[-1].start, midnight - timedelta(days=WINDOW_DAYS))

    async def fetch_cost_sums(
        since: datetime, until: datetime, per: str, query: CostQuery
    ) -> Sequence[CostRow]:
        sum_query = replace(
            query, since=since, until=until, granularity=per, group_by=(), measures=("calls",), kept=None
        )
        return await ledger.costs(sum_query) if since < until else []

    in_utc = replace(query, zone=UTC)
    hourly = await fetch_cost_sums(
        await ledger.earliest_moment_with_hourly_sums(midnight - timedelta(days=HOURS_DAYS)),
        midnight,
        "hourly",
        in_utc,
    )
    days = await fetch_cost_sums(first.replace(hour=0, minute=0), midnight, "daily", in_utc)
    running = await fetch_cost_sums(period.start, period.end, TOTAL, query)
    today = [day for day in days_in_period(period, query.zone) if not day.is_over(now)]
    spent = await fetch_cost_sums(today[0].start, today[0].end, TOTAL, query)
    return await asyncio.to_thread(
        _build_outlook,
        period,
        before,
        _cost_by_day(days),
        _cost_by_hour(hourly),
        _sum_cost(running),
        _sum_cost(spent),
        today,
        now,
    )


def _build_outlook(
    period: BudgetPeriod,
    before: Sequence[BudgetPeriod],
    days: dict[date, int],
    spend_by_hour: tuple[int, ...],
    actual: int,
    spent_today: int,
    days_left: Sequence[BudgetPeriod],
    now: float,
) -> Outlook:
    known = History(days=days, hours=spend_by_hour)
    at = datetime.fromtimestamp(now, UTC)
    until = [
        forecast_total(known, start=period.start, end=day.end, now=at, actual=actual) for day in days_left
    ]
    prediction = until[-1]
    if isinstance(prediction, TooEarly):
        return Outlook(period=period, actual=actual, forecast=prediction)
    errors = past_errors(
        known,
        [(earlier_period.start, earlier_period.end) for earlier_period in before],
        elapsed=period.elapsed_share(now),
    )
    wide = widen_by_errors(prediction, errors, actual=actual)
    left_over = max(1, prediction.total - actual)
    day_forecasts, forecast_so_far = [], actual
    for day, day_prediction in zip(days_left, until, strict=True):
        amount = max(0, day_prediction.total - forecast_so_far) if isinstance(day_prediction, Forecast) else 0
        base = spent_today if day is days_left[0] else 0
        day_forecasts.append(
            ExpectedDay(
                first_day=day.first_day,
                amount=base + amount,
                low=base + amount - amount * (prediction.total - wide.low) // left_over,
                high=base + amount + amount * (wide.high - prediction.total) // left_over,
            )
        )
        forecast_so_far += amount
    return Outlook(period=period, actual=actual, forecast=wide, days=day_forecasts)


def _sum_cost(rows: Sequence[CostRow]) -> int:
    return sum(money.text_to_units(row.cost) for row in rows)


def _cost_by_day(rows: Sequence[CostRow]) -> dict[date, int]:
    return {row.start.date(): money.text_to_units(row.cost) for row in rows}


def _cost_by_hour(rows: Sequence[CostRow]) -> tuple[int, ...]:
    cost_by_hour = [0] * 24
    for row in rows:
        cost_by_hour[row.start.hour] += money.text_to_units(row.cost)
    return tuple(cost_by_hour)
