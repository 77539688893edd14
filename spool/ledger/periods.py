"""
Periods from hours to years by the wall clock of a time zone. A day with a clock change has 23 or 25 hours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

from spool.ledger.queries import CostQuery, next_full_hour

_MONTHS = {"monthly": 1, "quarterly": 3, "yearly": 12}


def period_beginning(moment: datetime, granularity: str) -> datetime:
    if granularity == "hourly":
        return moment.replace(minute=0, second=0, microsecond=0)
    # if midnight occurs twice, the first midnight counts
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if granularity == "daily":
        return day
    if granularity == "weekly":
        return day - timedelta(days=day.weekday())
    return day.replace(month=(day.month - 1) // _MONTHS[granularity] * _MONTHS[granularity] + 1, day=1)


def next_beginning(start: datetime, granularity: str) -> datetime:
    if granularity == "hourly":
        after = (start.astimezone(UTC) + timedelta(hours=1)).astimezone(start.tzinfo)
        full = period_beginning(after, granularity)
        # if a clock goes back by half an hour, the next full hour may not be later
        return full if full.timestamp() > start.timestamp() else after
    first = period_beginning(start, granularity)
    if granularity == "daily":
        return first + timedelta(days=1)
    if granularity == "weekly":
        return first + timedelta(days=7)
    month = first.month - 1 + _MONTHS[granularity]
    return first.replace(year=first.year + month // 12, month=month % 12 + 1)


# -- named time ranges
# -----------------------------------------------------------------------------------------


Span = tuple[datetime, datetime]


def named_span(name: str, now: float, zone: tzinfo = UTC) -> Span:
    """
    Return the named range of RANGES by the zone's calendar. A range that has not ended ends with the running
    hour.
    """
    since, until = _SPANS[name](period_beginning(datetime.fromtimestamp(now, zone), "daily"))
    return since, until or next_full_hour(now)


def _days_until_now(count: int) -> Callable[[datetime], tuple[datetime, None]]:
    return lambda midnight: (midnight - timedelta(days=count - 1), None)


def _period_until_now(granularity: str) -> Callable[[datetime], tuple[datetime, None]]:
    return lambda midnight: (period_beginning(midnight, granularity), None)


def _previous_period(granularity: str) -> Callable[[datetime], Span]:
    def previous_period(midnight: datetime) -> Span:
        end = period_beginning(midnight, granularity)
        return period_beginning(end - timedelta(days=1), granularity), end

    return previous_period


# Each function gets the start of today. If it returns no end, the range includes today until now.
_SPANS: Mapping[str, Callable[[datetime], tuple[datetime, datetime | None]]] = {
    "today": _period_until_now("daily"),
    "yesterday": _previous_period("daily"),
    "last_7d": _days_until_now(7),
    "this_week": _period_until_now("weekly"),
    "last_week": _previous_period("weekly"),
    "last_30d": _days_until_now(30),
    "last_90d": _days_until_now(90),
    "this_month": _period_until_now("monthly"),
    "last_month": _previous_period("monthly"),
    "this_quarter": _period_until_now("quarterly"),
    "last_quarter": _previous_period("quarterly"),
    "this_year": _period_until_now("yearly"),
}
RANGES = tuple(_SPANS)
_DAYS_BACK = {"today": 1, "yesterday": 1, "this_week": 7, "last_week": 7}


def preceding_query(query: CostQuery, range_name: str | None = None) -> CostQuery:
    """
    Return the query for the preceding period. `range_name`: the name of the query's range in RANGES, if it has
    one.

    A named day or week: the same part of the day or week before. From the start of a month: the same part of
    the month before, or all of it for a whole month. From a midnight: the same hours, earlier by the number
    of days. Otherwise: the same length of time directly before.
    """
    since, until = query.since.astimezone(query.zone), query.until.astimezone(query.zone)
    if range_name in _DAYS_BACK:
        back = timedelta(days=_DAYS_BACK[range_name])
        return replace(query, since=since - back, until=until - back)
    length = until - since  # length by the wall clock
    day = since.replace(hour=0, minute=0, second=0, microsecond=0)
    next_month = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
    if since == day.replace(day=1) and until <= next_month:
        begin = (day - timedelta(days=1)).replace(day=1)
        end = since if until == next_month else min(begin + length, since)
        return replace(query, since=begin, until=end)
    shift = length if since != day else -(-length // timedelta(days=1)) * timedelta(days=1)
    return replace(query, since=since - shift, until=until - shift)


def move_to_whole_days(query: CostQuery, hours_since: datetime) -> CostQuery:
    """
    Return the query with start and end, if before `hours_since`, moved to the nearest midnight UTC, because
    only whole days are stored there. A range of less than a day does not change.
    """
    if query.until - query.since < timedelta(days=1):
        return query
    since, until = (
        end if end >= hours_since else period_beginning(end.astimezone(UTC) + timedelta(hours=12), "daily")
        for end in (query.since, query.until)
    )
    return replace(query, since=since, until=until)


def earlier_same_weekdays_query(query: CostQuery, range_name: str | None = None) -> CostQuery:
    """
    Return the query for the same weekdays of an earlier time range, to compare with. A month, a quarter, or a
    part from its start is compared with the one before.
    """
    before = preceding_query(query)
    since, until = query.since.astimezone(query.zone), query.until.astimezone(query.zone)
    if (
        range_name not in _DAYS_BACK
        and since.day == 1
        and since - before.since.astimezone(query.zone) >= timedelta(days=28)
    ):
        return before
    weeks = timedelta(days=7) * -(-(until - since) // timedelta(days=7))
    return replace(query, since=since - weeks, until=until - weeks)
