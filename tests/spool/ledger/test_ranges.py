"""Named spans follow a zone's calendar. An unfinished span ends with the running hour."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from spool.ledger.periods import RANGES, span

NOW = datetime(
    2026, 3, 31, 22, 30, tzinfo=UTC
)  # this is 1 April in Berlin, where the clocks changed on 29 March
END = "2026-03-31T23:00:00+00:00"


@pytest.mark.parametrize(
    ("name", "zone", "since", "until"),
    [
        ("mtd", "UTC", "2026-03-01T00:00:00+00:00", END),
        ("mtd", "Europe/Berlin", "2026-04-01T00:00:00+02:00", END),
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
        ("ytd", "Europe/Berlin", "2026-01-01T00:00:00+01:00", END),
    ],
)
def test_a_name_is_a_span(name: str, zone: str, since: str, until: str) -> None:
    """A named span starts and ends by the calendar of the zone. A span of days includes today."""
    begin, end = span(name, NOW.timestamp(), ZoneInfo(zone))
    assert begin.isoformat() == since
    assert end.isoformat() == until


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("day", [datetime(2024, 2, 29, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_span_begins_before_it_ends(name: str, day: datetime) -> None:
    """A span starts before it ends, even on the first day of a year and on 29 February."""
    begin, end = span(name, day.timestamp())
    assert begin < end
