"""Hours to years by the wall clock of a zone: a day on which the clock changes has 23 or 25 hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_MONTHS = {"monthly": 1, "quarterly": 3, "yearly": 12}


def beginning(when: datetime, granularity: str) -> datetime:
    """The first moment of the period that `when` is in."""
    if granularity == "hourly":
        return when.replace(minute=0, second=0, microsecond=0)
    # Where midnight comes twice, a day begins with the first one.
    day = when.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if granularity == "daily":
        return day
    if granularity == "weekly":
        return day - timedelta(days=day.weekday())
    return day.replace(month=(day.month - 1) // _MONTHS[granularity] * _MONTHS[granularity] + 1, day=1)


def next_beginning(start: datetime, granularity: str) -> datetime:
    """The first moment of the next period."""
    if granularity == "hourly":
        after = (start.astimezone(UTC) + timedelta(hours=1)).astimezone(start.tzinfo)
        full = beginning(after, granularity)
        # Where a clock goes back by half an hour, the full hour may be the one that the period began with.
        return full if full.timestamp() > start.timestamp() else after
    first = beginning(start, granularity)
    if granularity == "daily":
        return first + timedelta(days=1)
    if granularity == "weekly":
        return first + timedelta(days=7)
    month = first.month - 1 + _MONTHS[granularity]
    return first.replace(year=first.year + month // 12, month=month % 12 + 1)
