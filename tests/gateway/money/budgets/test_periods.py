"""Budget periods by the wall clock of the budget's time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.money.budgets.declared import BUDGETS, SpendBudget
from gateway.money.budgets.periods import LATE_S, days_in_period, judged_periods, period_at, periods_before

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def budget(granularity: str, *, created: str = "2026-01-01T00:00Z") -> SpendBudget:
    return BUDGETS.build_row_from_body({
        "id": "b", "name": "n", "view_id": "v", "granularity": granularity, "planned": {}, "default_amount": "1",
        "time_zone": "Europe/Berlin", "alerts": {}, "forecast_alerts": {}, "created": at(created),
        "last_updated": at(created), "rules_since": at(created),
    })  # fmt: skip


@pytest.mark.parametrize(
    ("moment", "granularity", "first_day", "start"),
    [
        ("2026-10-31T22:59:59Z", "monthly", "2026-10-01", "2026-09-30T22:00Z"),
        ("2026-10-31T23:00:00Z", "monthly", "2026-11-01", "2026-10-31T23:00Z"),
        ("2026-03-29T21:59:59Z", "daily", "2026-03-29", "2026-03-28T23:00Z"),
        ("2026-03-29T22:00:00Z", "daily", "2026-03-30", "2026-03-29T22:00Z"),
    ],
)
def test_a_period_begins_at_midnight_of_its_zone(
    moment: str, granularity: str, first_day: str, start: str
) -> None:
    """A call belongs to the month and day of the time zone, also around a clock change."""
    period = period_at(at(moment), granularity, BERLIN)
    assert period.first_day == first_day
    assert datetime.fromisoformat(start) == period.start


def test_a_month_consists_of_its_days() -> None:
    """
    The days of a budget month follow each other without a gap. A day on which the clock is set back has 25 hours.
    """
    period = period_at(at("2026-10-15T00:00Z"), "monthly", BERLIN)
    days = days_in_period(period, BERLIN)
    assert 31 == len(days)
    assert period.start == days[0].start
    assert period.end == days[-1].end
    assert {"2026-10-25"} == {day.first_day for day in days if day.seconds == 25 * 3600}
    assert [day.end for day in days[:-1]] == [day.start for day in days[1:]]


def test_periods_before_are_the_newest_first() -> None:
    january = period_at(at("2026-01-15T00:00Z"), "monthly", UTC)
    before = periods_before(january, "monthly", UTC, 3)
    assert ["2025-12-01", "2025-11-01", "2025-10-01"] == [period.first_day for period in before]


@pytest.mark.parametrize(
    ("granularity", "created", "expected"),
    [
        ("monthly", "2026-01-01T00:00Z", ["2026-11-01", "2026-10-01"]),
        ("monthly", "2026-11-01T00:00Z", ["2026-11-01"]),  # the budget did not exist in October
        ("daily", "2026-01-01T00:00Z", ["2026-11-03", "2026-11-02", "2026-11-01", "2026-10-31"]),
    ],
)
def test_a_closed_period_is_judged_for_three_days(
    granularity: str, created: str, expected: list[str]
) -> None:
    """Late calls may cross a threshold of an ended period, if the budget existed before the period ended."""
    judged = judged_periods(budget(granularity, created=created), at("2026-11-03T12:00Z"))
    assert expected == [period.first_day for period in judged]
    later = judged_periods(budget("monthly"), at("2026-10-31T23:00Z") + LATE_S)
    assert ["2026-11-01"] == [period.first_day for period in later]


def test_a_forecast_needs_a_part_of_the_period() -> None:
    """
    A forecast alert needs a tenth of a short period or three days of a long one. After the end it never fires.
    """
    day = period_at(at("2026-11-03T12:00Z"), "daily", UTC)
    month = period_at(at("2026-11-03T12:00Z"), "monthly", UTC)
    assert [False, True, False] == [
        day.can_forecast_alert(at(f"2026-11-{text}Z")) for text in ("03T02:23", "03T02:24", "04T00:00")
    ]
    assert [False, True] == [
        month.can_forecast_alert(at(f"2026-11-{text}Z")) for text in ("03T23:59", "04T00:00")
    ]
