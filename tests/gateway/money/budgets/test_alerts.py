"""
Thresholds: each fires once per period, only the highest is sent, and a forecast must hold before it fires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.money.budgets.alerts import AlertNotice, Reading, Thresholds, has_reached_percent, judge_alerts
from gateway.money.budgets.declared import (
    ACTUAL,
    BUDGET_ALERTS,
    CLEARED,
    CORRECTED,
    FIRED,
    FORECAST,
    PENDING,
    Alert,
    PeriodAlerts,
)
from spool.money import UNIT
from spool.registry.documents import stored_body

HOUR = 3600.0
BOTH = Thresholds(actual=[50, 80, 100], forecast=[100])


def reading(actual: int, *, at: float = 0.0, forecast: int | None = None, **other: bool) -> Reading:
    """Create a reading for a budget of 100 dollars."""
    value = None if forecast is None else forecast * UNIT
    return Reading(now=at, actual=actual * UNIT, limit=100 * UNIT, forecast=value, **other)


Alerts = dict[tuple[str, int], Alert]


def by_threshold(alerts: Sequence[Alert]) -> Alerts:
    return {(alert.kind, alert.percent): alert for alert in alerts}


def told(alerts: Alerts, *readings: Reading) -> tuple[Alerts, list[tuple[str, int, str]]]:
    """Apply readings; return the alerts and the sent notifications (kind, percent, state)."""
    all_notices: list[AlertNotice] = []
    for new_reading in readings:
        after, new = judge_alerts(BOTH, tuple(alerts.values()), new_reading)
        alerts = by_threshold(after)
        all_notices += new
    return alerts, [(notice.kind, notice.percent, notice.state) for notice in all_notices]


def test_higher_of_two_crossed_thresholds_is_sent() -> None:
    """If spend jumps over two thresholds, one notification is sent. The lower threshold counts as fired."""
    alerts, notices = told({}, reading(85), reading(90))
    assert [(ACTUAL, 80, FIRED)] == notices
    assert [False, True] == [alerts[ACTUAL, percent].told for percent in (50, 80)]


def test_a_sum_that_sinks_is_corrected_once() -> None:
    """
    If recalculated costs drop below a sent threshold, one correction is sent. Crossing it again sends nothing.
    """
    alerts, notices = told({}, *(reading(spent) for spent in (85, 70, 85, 70)))
    assert [(ACTUAL, 80, FIRED), (ACTUAL, 80, CORRECTED)] == notices
    assert CORRECTED == alerts[ACTUAL, 80].state
    assert FIRED == told(alerts, reading(81))[0][ACTUAL, 80].state


def test_sums_that_lack_records_correct_nothing() -> None:
    """A sum that is lower because records were deleted is not a correction."""
    _, notices = told({}, reading(85), reading(10, is_whole=False))
    assert [(ACTUAL, 80, FIRED)] == notices


def test_a_forecast_must_hold_for_six_hours() -> None:
    """
    A forecast fires after two readings above the threshold, six hours apart, without a lower one between them.
    """
    flapping = [
        reading(1, at=at * HOUR, forecast=value) for at, value in ((0, 120), (3, 90), (4, 120), (9.9, 120))
    ]
    alerts, notices = told({}, *flapping)
    assert [] == notices
    assert PENDING == alerts[FORECAST, 100].state
    _, notices = told(alerts, reading(1, at=10 * HOUR, forecast=100))
    assert [(FORECAST, 100, FIRED)] == notices


def test_a_forecast_clears_after_a_day_below_and_stays_quiet() -> None:
    """
    A forecast alert clears after a day of at least 5 points below the threshold. It does not fire again
    in the period.
    """
    values = ((0, 120), (6, 120), (7, 96), (40, 96), (41, 94), (64, 94), (66, 94), (70, 130), (90, 130))
    alerts, notices = told({}, *(reading(1, at=at * HOUR, forecast=value) for at, value in values))
    assert [(FORECAST, 100, FIRED)] == notices
    assert CLEARED == alerts[FORECAST, 100].state
    assert 66 * HOUR == alerts[FORECAST, 100].since


def test_an_actual_crossing_silences_the_forecast() -> None:
    """Once the amount is spent, its forecast alert is not sent any more."""
    alerts, notices = told(
        {}, reading(99, forecast=120), reading(100, at=HOUR, forecast=120), reading(100, at=9 * HOUR)
    )
    assert [(ACTUAL, 80, FIRED), (ACTUAL, 100, FIRED)] == notices
    assert (FORECAST, 100) not in alerts


def test_without_an_amount_nothing_is_judged() -> None:
    assert ((), []) == judge_alerts(BOTH, (), Reading(now=0, actual=UNIT, limit=None))


@pytest.mark.parametrize(("actual", "fires"), [(0, False), (1, True)])
def test_an_amount_of_zero_is_crossed_by_the_first_cent(actual: int, fires: bool) -> None:
    """If nothing is planned and nothing is spent, no alert fires."""
    _, notices = judge_alerts(BOTH, (), Reading(now=0, actual=actual, limit=0))
    assert fires == bool(notices)


amounts = st.integers(0, 250)
readings = st.lists(
    st.builds(
        lambda spent, forecast, hours, silent, whole: (spent, forecast, hours, silent, whole),
        amounts, st.none() | amounts, st.integers(0, 30), st.booleans(), st.booleans(),
    ),
    max_size=25,
)  # fmt: skip
thresholds = st.lists(st.integers(1, 250), unique=True, max_size=5).map(sorted)


@given(readings, thresholds, thresholds)
def test_any_course_fires_each_threshold_once(
    course: list[tuple[int, int | None, int, bool, bool]], actual: list[int], forecast: list[int]
) -> None:
    """
    For any sequence of spend, forecasts, restarts and silences, each threshold is sent and corrected at most
    once. Every crossing is stored, and a notification covers the highest new crossing.
    """
    both = Thresholds(actual=actual, forecast=forecast)
    alerts: tuple[Alert, ...] = ()
    counts: Counter[tuple[str, int, str]] = Counter()
    now = 0.0
    for spent, expected, hours, silent, whole in course:
        now += hours * HOUR
        new_reading = reading(spent, at=now, forecast=expected, is_silent=silent, is_whole=whole)
        before = by_threshold(alerts)
        alerts, new = judge_alerts(both, alerts, new_reading)
        # After a restart, the states are read from the registry.
        period_alerts = PeriodAlerts(
            budget_id="b", first_day="2026-11-01", end=1.0, rules="r", owners={"": alerts}
        )
        assert period_alerts == BUDGET_ALERTS.build_row_from_body(stored_body(period_alerts))
        counts.update((one.kind, one.percent, one.state) for one in new)
        crossed = [percent for percent in actual if has_reached_percent(spent * UNIT, 100 * UNIT, percent)]
        assert all((ACTUAL, percent) in by_threshold(alerts) for percent in crossed)
        fresh = [percent for percent in crossed if (ACTUAL, percent) not in before]
        expected_told = [max(fresh)] if fresh and not silent else []
        assert expected_told == [one.percent for one in new if one.kind == ACTUAL and one.state == FIRED]
    assert all(count == 1 for count in counts.values())
