"""
Periods from hours to years by the wall clock of a time zone. A day with a clock change has 23 or 25 hours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain

from spool.ledger.queries import next_full_hour

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


# -- spans of a comparison
# -----------------------------------------------------------------------------------------

PREVIOUS, SAME_WEEKDAYS = "previous", "same_weekdays"
GRAINS = HOUR, DAY = ("hour", "day")
_DAY = timedelta(days=1)
_HALF_YEAR_S = 182 * 86_400
_CALENDAR = ("daily", "weekly", "monthly", "quarterly", "yearly")
_LONG = _CALENDAR[2:]  # periods whose lengths differ
# named range -> the calendar period that it is, or the part of it until now
_PERIOD_OF_RANGE: Mapping[str, str] = {
    "today": "daily",
    "yesterday": "daily",
    "this_week": "weekly",
    "last_week": "weekly",
    "this_month": "monthly",
    "last_month": "monthly",
    "this_quarter": "quarterly",
    "last_quarter": "quarterly",
    "this_year": "yearly",
}


@dataclass(frozen=True, slots=True)
class ComparedSpans:
    """
    Two spans to compare, of one length by the wall clock or two whole calendar periods of one kind. Otherwise
    `is_comparable` is False, and only their averages can be compared.

    `rest` is the end of the requested range that has no counterpart, because the earlier period is shorter.
    `grain` is DAY if both spans were cut to whole days of UTC. If `now` is empty, it is too early to compare.
    """

    now: Span
    before: Span
    rest: Span | None
    grain: str

    @property
    def is_too_early(self) -> bool:
        return self.now[0] >= self.now[1]

    @property
    def begins_at(self) -> datetime:
        """Return the time from which the range has a first whole hour, or a first whole day of UTC."""
        start = self.now[0]
        if self.grain == HOUR:
            return next_full_hour(start.timestamp()).astimezone(start.tzinfo)
        return _first_midnight_utc(start) + _DAY

    @property
    def is_comparable(self) -> bool:
        return _length(self.now) == _length(self.before) or self.whole_period is not None

    @property
    def whole_period(self) -> str | None:
        """Return the kind of calendar period, if both spans are whole periods of one kind."""
        return next((kind for kind in _CALENDAR if _are_whole(kind, self.now, self.before)), None)

    def texts(self, at: float) -> tuple[str, str]:
        """Write both spans. `at` is the current time, because only other years are written."""
        kind = self.whole_period
        if kind in _LONG and _length(self.now) != _length(self.before):
            return _period_text(self.now, kind, at), _period_text(self.before, kind, at)
        return span_text(self.now, at), span_text(self.before, at)


def compared_spans(
    asked: str | Span, against: str | Span, now: float, zone: tzinfo, hours_since: datetime
) -> ComparedSpans:
    """
    Return the spans that are compared if `asked` is compared with `against`. Both are a name of RANGES or a
    span; `against` may also be PREVIOUS or SAME_WEEKDAYS.

    The range ends at the last full hour. A named past of the same kind begins at its period and is as long as
    the range by the wall clock; if it is shorter, both are cut to it. Periods that are over stay whole. Before
    `hours_since` only whole days of UTC are stored, so if a span begins or ends there within a day, both are
    cut to whole days.
    """
    last = datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0)
    end = (period_beginning(last, "daily") if hours_since > last else last).astimezone(zone)
    range_name = asked if isinstance(asked, str) else None
    since, until = _in_zone(named_span(asked, now, zone) if isinstance(asked, str) else asked, zone)
    kinds = _calendar_kinds(range_name, (since, until))
    earlier, is_paired = _earlier_span((since, until), range_name, kinds, against, now, end)
    current = since, min(until, end)
    if since >= end:
        grain = HOUR if hours_since <= last else DAY
        return ComparedSpans((since, since), (earlier[0], earlier[0]), None, grain)
    # a past that has not begun is known to be empty; any other ends with the last full hour as well
    earlier = (earlier[0], min(earlier[1], end)) if earlier[0] < end else earlier
    spans, grain = _cut(current, earlier, is_paired=is_paired), HOUR
    if any(edge < hours_since and not _is_midnight_utc(edge) for edge in chain(*spans)):
        days = _whole_days(current), _whole_days(earlier)
        if all(first < last_day for first, last_day in days):
            spans, current, grain = _cut(*days, is_paired=is_paired), days[0], DAY
    rest = (spans[0][1], current[1]) if spans[0][1] < current[1] else None
    return ComparedSpans(*spans, rest, grain)


def _calendar_kinds(range_name: str | None, span: Span) -> tuple[str, ...]:
    """Return the calendar periods of which a range is the beginning or all. Other named ranges move by the day."""
    if range_name is not None:
        return (_PERIOD_OF_RANGE[range_name],) if range_name in _PERIOD_OF_RANGE else ()
    return tuple(
        kind
        for kind in _CALENDAR
        if period_beginning(span[0], kind) == span[0] and span[1] <= next_beginning(span[0], kind)
    )


def _earlier_span(
    span: Span, range_name: str | None, kinds: tuple[str, ...], against: str | Span, now: float, end: datetime
) -> tuple[Span, bool]:
    """Return the earlier time before it is cut, and whether both are to have one length."""
    since, until = span
    zone = since.tzinfo or UTC
    if not isinstance(against, str):
        earlier = _in_zone(against, zone)
        # a range that still runs is compared with a time that is as long as it will be at its end
        planned = next_beginning(since, kinds[0]) if range_name and kinds else _next_midnight(until)
        is_paired = _is_midnight(since) and (
            planned - since == _length(earlier)
            or any(_are_whole(kind, earlier) for kind in kinds if until > end)
        )
        return earlier, is_paired
    if against in RANGES:
        start, stop = _in_zone(named_span(against, now, zone), zone)
        kind = _PERIOD_OF_RANGE.get(against, "")
        return (start, next_beginning(start, kind) if kind else stop), kind in kinds
    # own days are a month from its start; a longer period must be whole, so that a moved range keeps its days
    long = next(
        (
            kind
            for kind in kinds
            if kind in _LONG and (range_name or kind == "monthly" or until == next_beginning(since, kind))
        ),
        None,
    )
    if long is not None:
        return (period_beginning(since - _DAY, long), since), True
    if not _is_midnight(since):
        back = min(until, max(since, end)) - since
    else:
        back = -(-(min(until, _next_midnight(end)) - since) // _DAY) * _DAY
    if range_name in _PERIOD_OF_RANGE:
        back = next_beginning(since, kinds[0]) - since
    if against == SAME_WEEKDAYS:
        back = -(-back // (7 * _DAY)) * 7 * _DAY
    return (since - back, until - back), True


def _cut(current: Span, earlier: Span, *, is_paired: bool) -> tuple[Span, Span]:
    """Cut a pair of spans to one length, unless both are whole periods of one kind."""
    if not is_paired or any(_are_whole(kind, current, earlier) for kind in _CALENDAR):
        return current, earlier
    shorter = min(_length(current), _length(earlier))
    return _first_part(current, shorter), _first_part(earlier, shorter)


def _first_part(span: Span, length: timedelta) -> Span:
    return span if _length(span) == length else (span[0], span[0] + length)


def _are_whole(kind: str, *spans: Span) -> bool:
    return all(
        period_beginning(since, kind) == since and next_beginning(since, kind) == until
        for since, until in spans
    )


def _whole_days(span: Span) -> Span:
    return _first_midnight_utc(span[0]), period_beginning(span[1].astimezone(UTC), "daily")


def _first_midnight_utc(moment: datetime) -> datetime:
    midnight = period_beginning(moment.astimezone(UTC), "daily")
    return midnight if midnight == moment else midnight + _DAY


def _is_midnight_utc(moment: datetime) -> bool:
    return _is_midnight(moment.astimezone(UTC))


def _is_midnight(moment: datetime) -> bool:
    return not (moment.hour or moment.minute or moment.second or moment.microsecond)


def _next_midnight(moment: datetime) -> datetime:
    return moment if _is_midnight(moment) else next_beginning(moment, "daily")


def _in_zone(span: Span, zone: tzinfo) -> Span:
    return span[0].astimezone(zone), span[1].astimezone(zone)


def _length(span: Span) -> timedelta:
    """Return the length of a span by the wall clock of its zone."""
    return span[1].replace(tzinfo=None) - span[0].replace(tzinfo=None)


def span_text(span: Span, at: float) -> str:
    """Write a span to the minute: days without hours if it has whole days, and a year that is not the current one."""
    since, until = span
    this_year = datetime.fromtimestamp(at, since.tzinfo).year
    is_of_days = _is_midnight(since)
    last = until - _DAY if is_of_days and _is_midnight(until) and since < until else until
    hour = "" if last is not until else f"{until:%H:%M}"
    begin, finish = _day_text(since, this_year), _day_text(last, this_year)
    if since.date() == last.date():
        joined = f" until {hour}" if is_of_days else f" {since:%H:%M} to {hour}"
        return f"{begin}{joined if hour else ''}"
    if not is_of_days:
        return f"{begin} {since:%H:%M} to {finish} {hour}"
    begin = f"{since.day}" if (since.year, since.month) == (last.year, last.month) else begin
    return f"{begin} to {finish}{hour and f' {hour}'}"


def minute_text(moment: float, at: float) -> str:
    """Write a time in UTC for a title, such as 3 Dec, 10:11, with the year if it is over half a year from `at`."""
    when = datetime.fromtimestamp(moment, UTC)
    return f"{_day_text(when, when.year if abs(moment - at) < _HALF_YEAR_S else 0)}, {when:%H:%M}"


def _day_text(moment: datetime, this_year: int) -> str:
    return (
        f"{moment.day} {moment:%b}" if moment.year == this_year else f"{moment.day} {moment:%b} {moment.year}"
    )


def _period_text(span: Span, kind: str, at: float) -> str:
    since = span[0]
    names = {"monthly": f"{since:%B}", "quarterly": f"Q{(since.month + 2) // 3}"}
    is_other_year = kind == "yearly" or since.year != datetime.fromtimestamp(at, since.tzinfo).year
    words = [*([names[kind]] if kind in names else []), *([f"{since.year}"] if is_other_year else [])]
    return f"{' '.join(words)} ({_length(span).days} days)"
