"""Named spans follow a zone's calendar. An unfinished span ends with the running hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from spool.ledger.periods import RANGES, named_span
from spool.ledger.queries import next_full_hour
from tests.rounds import some

# this is 1 April in Berlin, where the clocks changed on 29 March
NOW = datetime(2026, 3, 31, 22, 30, tzinfo=UTC)
END = "2026-03-31T23:00:00+00:00"


@pytest.mark.parametrize(
    ("name", "zone", "since", "until"),
    [
        ("this_month", "UTC", "2026-03-01T00:00:00+00:00", END),
        ("this_month", "Europe/Berlin", "2026-04-01T00:00:00+02:00", END),
        ("today", "UTC", "2026-03-31T00:00:00+00:00", END),
        ("today", "Europe/Berlin", "2026-04-01T00:00:00+02:00", END),
        ("this_week", "UTC", "2026-03-30T00:00:00+00:00", END),
        ("last_month", "UTC", "2026-02-01T00:00:00+00:00", "2026-03-01T00:00:00+00:00"),
        ("last_month", "Europe/Berlin", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00"),
        ("last_7d", "UTC", "2026-03-25T00:00:00+00:00", END),
        ("last_7d", "Europe/Berlin", "2026-03-26T00:00:00+01:00", END),
        ("last_30d", "UTC", "2026-03-02T00:00:00+00:00", END),
        ("last_90d", "UTC", "2026-01-01T00:00:00+00:00", END),
        ("yesterday", "UTC", "2026-03-30T00:00:00+00:00", "2026-03-31T00:00:00+00:00"),
        ("last_week", "UTC", "2026-03-23T00:00:00+00:00", "2026-03-30T00:00:00+00:00"),
        ("this_quarter", "UTC", "2026-01-01T00:00:00+00:00", END),
        ("this_quarter", "Europe/Berlin", "2026-04-01T00:00:00+02:00", END),
        ("last_quarter", "UTC", "2025-10-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"),
        ("this_year", "Europe/Berlin", "2026-01-01T00:00:00+01:00", END),
    ],
)
def test_a_name_is_a_span(name: str, zone: str, since: str, until: str) -> None:
    """A named span starts and ends by the calendar of the zone. A span of days includes today."""
    begin, end = named_span(name, NOW.timestamp(), ZoneInfo(zone))
    assert begin.isoformat() == since
    assert end.isoformat() == until


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("day", [datetime(2024, 2, 29, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_span_begins_before_it_ends(name: str, day: datetime) -> None:
    """A span starts before it ends, even on the first day of a year and on 29 February."""
    begin, end = named_span(name, day.timestamp())
    assert begin < end


def _month(day: date, back: int = 0) -> tuple[int, int]:
    return divmod(day.year * 12 + day.month - 1 - back, 12)


def _quarter(day: date, back: int = 0) -> int:
    return (day.year * 12 + day.month - 1) // 3 - back


def _week(day: date, back: int = 0) -> tuple[int, int]:
    return (day - timedelta(days=7 * back)).isocalendar()[:2]


def _of_last(days: int) -> Callable[[date, date], bool]:
    return lambda day, today: today - timedelta(days=days) < day <= today


# Whether a day belongs to a range, by the calendar and without the ledger's periods.
BELONGS: Mapping[str, Callable[[date, date], bool]] = {
    "this_month": lambda day, today: _month(day) == _month(today),
    "last_month": lambda day, today: _month(day) == _month(today, 1),
    "last_7d": _of_last(7),
    "last_30d": _of_last(30),
    "last_90d": _of_last(90),
    "today": lambda day, today: day == today,
    "yesterday": lambda day, today: day == today - timedelta(days=1),
    "this_week": lambda day, today: _week(day) == _week(today),
    "last_week": lambda day, today: _week(day) == _week(today, 1),
    "this_quarter": lambda day, today: _quarter(day) == _quarter(today),
    "last_quarter": lambda day, today: _quarter(day) == _quarter(today, 1),
    "this_year": lambda day, today: day.year == today.year,
}
# the first of a month that is a Monday, the first of a year, and times within changes of clocks in Europe, in Cuba with
# two midnights, in Chile without a midnight, and on Lord Howe Island by half an hour
MOMENTS = [
    datetime(2026, *rest, tzinfo=UTC)
    for rest in ((6, 1, 0, 0), (1, 1, 0, 10), (3, 29, 1, 30), (11, 1, 5, 30), (9, 6, 4, 30), (4, 4, 15, 10))
]


@pytest.mark.parametrize("now", MOMENTS, ids=str)
def test_a_span_is_a_count_of_days_in_every_zone(now: datetime) -> None:
    """In each time zone, a range has exactly the moments of its days, and today until the end of the running hour."""
    assert set(RANGES) == set(BELONGS)
    minute = timedelta(minutes=1)
    for zone in map(ZoneInfo, some(sorted(available_timezones()), every=6)):
        today = now.astimezone(zone).date()
        for name, belongs in BELONGS.items():
            since, until = (edge.astimezone(UTC) for edge in named_span(name, now.timestamp(), zone))
            days = [at.astimezone(zone).date() for at in (since - minute, since, until - minute, until)]
            inside = [belongs(day, today) for day in days]
            assert [False, True] == inside[:2], (name, zone.key, since)
            if belongs(today, today):
                assert next_full_hour(now.timestamp()) == until, (name, zone.key)
            else:
                assert [True, False] == inside[2:], (name, zone.key, until)
