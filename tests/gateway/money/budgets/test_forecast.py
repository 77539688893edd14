"""Forecasts of a period: the median of four methods, or none if it is too early."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.money.budgets.forecast import (
    DAY,
    Forecast,
    History,
    TooEarly,
    forecast_total,
    past_errors,
    widen_by_errors,
)

START = datetime(2026, 11, 1, tzinfo=UTC)
END = datetime(2026, 12, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
WEEK = (1.2, 1.25, 1.2, 1.15, 1.1, 0.5, 0.4)


def history(spent: Callable[[date], int], *, days: int, now: datetime = NOW) -> History:
    """Return the complete days before `now`."""
    dates = [now.date() - DAY * back for back in range(1, days + 1)]
    return History(days={day: spent(day) for day in dates})


def made(found: Forecast | TooEarly) -> Forecast:
    assert isinstance(found, Forecast)
    return found


def test_a_steady_spend_is_carried_on_to_the_end() -> None:
    """Constant daily spend is forecast exactly, including the rest of today."""
    prediction = made(
        forecast_total(history(lambda _: 1000, days=28), start=START, end=END, now=NOW, actual=15_500)
    )
    assert Forecast(total=30_000, low=30_000, high=30_000) == prediction


def test_the_rest_of_today_follows_the_hours() -> None:
    """If all spend happens at night, nothing more is expected after noon."""
    night = History(days=history(lambda _: 1000, days=28).days, hours=(1,) * 6 + (0,) * 18)
    end = datetime(2026, 11, 17, tzinfo=UTC)
    prediction = made(
        forecast_total(night, start=datetime(2026, 11, 16, tzinfo=UTC), end=end, now=NOW, actual=1000)
    )
    assert 1000 == prediction.total


def test_a_weekend_ahead_counts_as_one() -> None:
    """Weekdays with little spend are expected to have little spend again."""
    friday = datetime(2026, 11, 13, 23, 59, tzinfo=UTC)
    weekly = history(lambda day: 1000 if day.weekday() < 5 else 0, days=28, now=friday)
    end = datetime(2026, 11, 16, tzinfo=UTC)
    prediction = made(forecast_total(weekly, start=START, end=end, now=friday, actual=10_000))
    assert 10_000 <= prediction.total < 10_300


@pytest.mark.parametrize(("days", "reason"), [(0, "0 of 7"), (6, "6 of 7")])
def test_it_is_silent_below_a_week_of_history(days: int, reason: str) -> None:
    """With less than a week of history there is no forecast, because one spike would spoil every method."""
    prediction = forecast_total(history(lambda _: 1000, days=days), start=START, end=END, now=NOW, actual=5)
    assert isinstance(prediction, TooEarly)
    assert reason in prediction.reason
    assert isinstance(
        forecast_total(history(lambda _: 1, days=7), start=START, end=END, now=NOW, actual=5), Forecast
    )


def test_it_is_silent_where_most_days_spend_nothing() -> None:
    rare = history(lambda day: 1000 if day.toordinal() % 3 == 0 else 0, days=28)
    assert isinstance(forecast_total(rare, start=START, end=END, now=NOW, actual=5000), TooEarly)


def month_error(kind: str, seed: int, *, naive: bool) -> float:
    """
    Return the relative error of a forecast for one random month. `naive` uses the plain run rate of other gateways.
    """
    source = random.Random(seed)
    now = START + timedelta(days=source.randrange(4, 27))
    spike, step = source.randrange(1, 21), source.randrange(3, 15)
    days = {}
    for ahead in range(-35, (END - now).days):
        day = (now + timedelta(days=ahead)).date()
        spent = 1e6 * WEEK[day.weekday()] * math.exp(source.gauss(0, 0.25))
        spent *= {"trend": 1.01**ahead, "step": 1.8 if ahead >= -step else 1.0}.get(kind, 1.0)
        days[day] = int(spent * (8 if kind == "spike" and ahead == -spike else 1))
    actual = sum(spent for day, spent in days.items() if START.date() <= day < now.date())
    truth = actual + sum(spent for day, spent in days.items() if day >= now.date())
    known = History(days={day: spent for day, spent in days.items() if day < now.date()})
    total = made(forecast_total(known, start=START, end=END, now=now, actual=actual)).total
    if naive:
        total = actual * (END - START).days // (now - START).days
    return abs(total - truth) / truth


@pytest.mark.parametrize(
    ("kind", "most", "of_naive"),
    [("season", 0.06, 0.75), ("trend", 0.11, 1.2), ("step", 0.12, 1.0), ("spike", 0.1, 0.75)],
)
def test_it_is_never_far_off(kind: str, most: float, of_naive: float) -> None:
    """
    Over 200 random months of each kind, the error stays below a limit, and below a part of the plain
    run rate's error.
    """
    errors = [month_error(kind, seed, naive=False) for seed in range(200)]
    naive = [month_error(kind, seed, naive=True) for seed in range(200)]
    assert sum(errors) / len(errors) < most
    assert sum(errors) < sum(naive) * of_naive


@given(
    st.lists(st.integers(0, 10**30), min_size=7, max_size=40),
    st.integers(0, 10**31),
    st.integers(0, 30 * 86400 - 1),
)
def test_bounds_hold_the_total(spent: list[int], actual: int, second: int) -> None:
    """For any history, the forecast is at least the actual spend, and the range contains the forecast."""
    now = START + timedelta(seconds=second)
    days = {now.date() - DAY * back: each for back, each in enumerate(spent, start=1)}
    prediction = forecast_total(History(days=days), start=START, end=END, now=now, actual=actual)
    if isinstance(prediction, Forecast):
        assert actual <= prediction.low <= prediction.total <= prediction.high
        wide = widen_by_errors(prediction, [-2_000, 1_000], actual=actual)
        assert actual <= wide.low <= wide.total <= wide.high
        assert wide.low <= prediction.low
        assert wide.high >= prediction.high


def test_past_errors_say_how_wrong_it_was() -> None:
    """
    If spend doubled half-way through a month, the stated error is the share by which its forecast was too low.
    """
    days = {date(2026, 9, 1) + DAY * ahead: 1000 if ahead < 45 else 2000 for ahead in range(61)}
    october = (datetime(2026, 10, 1, tzinfo=UTC), START)
    [error] = past_errors(History(days=days), [october], elapsed=15 / 31)
    spent = 15 * 1000 + 16 * 2000
    assert (31 * 1000 - spent) * 10_000 // spent == error
    assert [] == past_errors(History(days={}), [october], elapsed=0.5)
