"""Periods by a zone's wall clock have no gaps and no overlaps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.ledger.dimensions import GRANULARITIES
from spool.ledger.periods import next_beginning, period_beginning

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Santiago",
    "Atlantic/Azores", "Africa/Cairo", "America/Havana", "Pacific/Apia",
)  # fmt: skip
moments = st.integers(946_684_800, 2_000_000_000)  # times in the years 2000 to 2033


@given(moments, st.sampled_from(ZONES), st.sampled_from([each for each in GRANULARITIES if each != "hourly"]))
def test_a_moment_is_in_one_period(moment: int, name: str, granularity: str) -> None:
    """
    A period starts at or before its moments and ends after them, and the next period starts where it ends.
    """
    zone = ZoneInfo(name)
    start = period_beginning(datetime.fromtimestamp(moment, zone), granularity)
    end = next_beginning(start, granularity)
    assert start.timestamp() <= moment < end.timestamp()
    assert (
        period_beginning(datetime.fromtimestamp(end.timestamp(), zone), granularity).timestamp()
        == end.timestamp()
    )
    before = datetime.fromtimestamp(end.timestamp() - 1, zone)
    assert period_beginning(before, granularity).timestamp() == start.timestamp()


@pytest.mark.parametrize(
    ("day", "granularity", "hours"),
    [
        ("2026-03-29", "daily", 23),
        ("2026-10-25", "daily", 25),
        ("2026-11-21", "daily", 24),
        ("2026-03-01", "monthly", 31 * 24 - 1),
        ("2026-10-01", "monthly", 31 * 24 + 1),
        ("2026-03-23", "weekly", 7 * 24 - 1),
        ("2026-01-01", "quarterly", 90 * 24 - 1),
        ("2026-01-01", "yearly", 365 * 24),
    ],
)
def test_the_clock_changes_of_berlin(day: str, granularity: str, hours: int) -> None:
    """A period with a clock change is an hour shorter or longer. A year has one of each."""
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    end = next_beginning(period_beginning(start, granularity), granularity)
    assert timedelta(hours=hours) == end.astimezone(UTC) - start.astimezone(UTC)


@pytest.mark.parametrize(
    ("day", "granularity", "first"),
    [
        ("2026-11-21", "weekly", "2026-11-16"),
        ("2026-11-16", "weekly", "2026-11-16"),
        ("2026-12-31", "quarterly", "2026-10-01"),
        ("2026-02-28", "monthly", "2026-02-01"),
        ("2026-12-31", "yearly", "2026-01-01"),
    ],
)
def test_the_first_day_of_a_period(day: str, granularity: str, first: str) -> None:
    """Weeks start on Monday, quarters in January, April, July and October."""
    assert first == period_beginning(datetime.fromisoformat(day), granularity).date().isoformat()
