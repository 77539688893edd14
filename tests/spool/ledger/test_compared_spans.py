"""Compared spans have one length by the wall clock, or are whole calendar periods of one kind."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest

from spool.ledger.periods import (
    DAY,
    HOUR,
    PREVIOUS,
    RANGES,
    SAME_WEEKDAYS,
    ComparedSpans,
    Span,
    compared_spans,
    minute_text,
    named_span,
    span_text,
)

ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Pacific/Auckland", "Asia/Kolkata")
# a Monday, the first minutes of a month, the end of March, and days with a change of the clocks in Berlin
CLOCKS = ("2026-11-16T10:20", "2026-12-01T00:20", "2026-03-30T10:20", "2026-03-29T13:20", "2026-10-25T13:20")
LONG = {"month": 1, "quarter": 3, "year": 12}
ONE_DAY = timedelta(days=1)


def compared(
    asked: str, against: str | Span, clock: str, zone: str = "UTC", kept: datetime = ALWAYS
) -> ComparedSpans:
    now = datetime.fromisoformat(clock).replace(tzinfo=ZoneInfo(zone)).timestamp()
    return compared_spans(asked, against, now, ZoneInfo(zone), kept)


@pytest.mark.parametrize(
    ("asked", "against", "clock", "now", "before", "rest"),
    [
        ("this_week", "last_week", CLOCKS[0], "16 Nov until 10:00", "9 Nov until 10:00", None),
        ("today", "yesterday", CLOCKS[0], "16 Nov until 10:00", "15 Nov until 10:00", None),
        ("this_quarter", PREVIOUS, CLOCKS[0], "1 Oct to 16 Nov 10:00", "1 Jul to 16 Aug 10:00", None),
        ("this_year", PREVIOUS, CLOCKS[0], "1 Jan to 16 Nov 10:00", "1 Jan 2025 to 16 Nov 2025 10:00", None),
        ("last_month", PREVIOUS, CLOCKS[0], "October (31 days)", "September (30 days)", None),
        ("last_quarter", PREVIOUS, CLOCKS[0], "Q3 (92 days)", "Q2 (91 days)", None),
        ("last_month", PREVIOUS, CLOCKS[1], "1 to 30 Nov", "1 to 31 Oct", None),
        ("last_30d", SAME_WEEKDAYS, CLOCKS[0], "18 Oct to 16 Nov 10:00", "13 Sep to 12 Oct 10:00", None),
        ("this_month", "last_month", CLOCKS[2], "1 to 28 Mar", "1 to 28 Feb", "29 to 30 Mar 10:00"),
        ("today", PREVIOUS, CLOCKS[3], "29 Mar until 13:00", "28 Mar until 13:00", None),
        ("today", PREVIOUS, CLOCKS[4], "25 Oct until 13:00", "24 Oct until 13:00", None),
        (
            "yesterday",
            "today",
            CLOCKS[0],
            "15 Nov until 10:00",
            "16 Nov until 10:00",
            "15 Nov 10:00 to 16 Nov 00:00",
        ),
    ],
)
def test_both_spans_are_written(
    asked: str, against: str, clock: str, now: str, before: str, rest: str | None
) -> None:
    """Both spans are written to the minute, with the part of the range that has no counterpart."""
    if (asked, clock) == ("last_month", CLOCKS[1]):
        now, before = "November (30 days)", "October (31 days)"
    spans = compared(asked, against, clock, "Europe/Berlin")
    at = datetime.fromisoformat(clock).timestamp()
    assert (now, before) == spans.texts(at)
    assert rest == (spans.rest and span_text(spans.rest, at))
    assert spans.is_comparable


def test_it_may_be_too_early() -> None:
    """Before the first full hour there is nothing to compare, and before the first full day of bills as well."""
    spans = compared("this_month", PREVIOUS, CLOCKS[1])
    assert spans.is_too_early
    assert datetime(2026, 12, 1, 1, tzinfo=UTC) == spans.begins_at
    billed = compared("today", PREVIOUS, CLOCKS[0], kept=NEVER)
    assert billed.is_too_early
    assert datetime(2026, 11, 17, tzinfo=UTC) == billed.begins_at


def test_own_days_are_cut_only_to_days_of_the_same_number() -> None:
    """Own days that are as many as a running range has are cut to it. Any other number has no parts."""
    days = [datetime(2026, 10, 1, tzinfo=UTC) + ONE_DAY * count for count in (0, 7, 31)]
    week = compared("last_7d", (days[0], days[1]), CLOCKS[0])
    assert ("10 to 16 Nov 10:00", "1 to 7 Oct 10:00") == week.texts(week.now[1].timestamp())
    assert not compared("last_7d", (days[0], days[2]), CLOCKS[0]).is_comparable
    month = compared("this_month", (days[0], days[2]), CLOCKS[0])
    assert ("1 to 16 Nov 10:00", "1 to 16 Oct 10:00") == month.texts(month.now[1].timestamp())


def test_both_are_cut_to_days_where_hours_are_not_stored() -> None:
    """If the earlier time begins or ends within a day that has only a daily sum, both are cut to days of UTC."""
    border = datetime(2026, 9, 15, tzinfo=UTC)
    for zone, before in (("UTC", "1 Jul to 15 Aug"), ("America/New_York", "2 Jul to 15 Aug")):
        spans = compared("this_quarter", PREVIOUS, CLOCKS[0], zone, border)
        assert DAY == spans.grain
        assert before == spans.texts(spans.now[1].timestamp())[1]
    assert HOUR == compared("last_30d", PREVIOUS, CLOCKS[0], kept=border).grain


def wall(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)


def months_back(day: date, count: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 - count, 12)
    return date(year, month + 1, 1)


def is_whole_month(since: datetime, until: datetime, months: int) -> bool:
    starts = (
        since.day == 1
        and (since.month - 1) % months == 0
        and since.time() == until.time() == datetime.min.time()
    )
    return starts and months_back(until.date(), months) == since.date() and until.day == 1


def check(seed: int) -> None:
    """Compare one random question with what its two times are by the calendar of naive local times."""
    dice = Random(seed)
    zone = ZoneInfo(dice.choice(ZONES))
    at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=dice.randrange(3 * 365 * 1440))
    kept = dice.choice((ALWAYS, at - timedelta(days=dice.randrange(1, 100)), NEVER))
    kept = kept if kept in (ALWAYS, NEVER) else kept.replace(hour=0, minute=0)
    named, past = dice.choice(RANGES), dice.choice((PREVIOUS, SAME_WEEKDAYS, *RANGES))
    spans = compared_spans(named, past, at.timestamp(), zone, kept)
    words = (named, past, at.isoformat(), zone.key, kept)
    kind, of_past = (name.partition("_")[2] for name in (named, past))
    kind = {"": "day"}.get(kind, kind)
    of_past = {"": "day"}.get(of_past, of_past)
    asked = named_span(named, at.timestamp(), zone)
    last = at.replace(minute=0) if kept <= at.replace(minute=0) else at.replace(hour=0, minute=0)
    if asked[0] >= last:
        assert spans.is_too_early and spans.begins_at > asked[0], words
        return
    shown = UTC if spans.grain == DAY else zone
    now, before = ([wall(edge, shown) for edge in span] for span in (spans.now, spans.before))  # type: ignore[arg-type]
    is_same = past in (PREVIOUS, SAME_WEEKDAYS) or kind == of_past
    months = LONG.get(kind, 0)
    whole = bool(months) and all(is_whole_month(side[0], side[1], months) for side in (now, before))
    if is_same:
        # equal by the wall clock; an end that the clocks skip is an hour later
        lengths = [side[1] - side[0] for side in (now, before)]
        assert whole or abs(lengths[0] - lengths[1]) <= timedelta(hours=1), words
        assert spans.is_comparable, words
    assert spans.now[1] <= last and asked[0] <= spans.now[0] < spans.now[1] <= asked[1], words
    if spans.grain == DAY:
        assert all(
            edge.astimezone(UTC).time() == datetime.min.time() for edge in (*spans.now, *spans.before)
        ), words
        assert kept >= min(spans.before[0], spans.now[0]), words
        return
    assert spans.now[0] == asked[0], words
    if past in (PREVIOUS, SAME_WEEKDAYS):
        start = wall(asked[0], zone)
        if months:
            expected = datetime.combine(months_back(start.date(), months), datetime.min.time())
        else:
            # of bills, only the finished days count
            days = {"day": 1, "week": 7}.get(kind) or int(kind.removesuffix("d")) - (kept == NEVER)
            expected = start - timedelta(days=-(-days // 7) * 7 if past == SAME_WEEKDAYS else days)
        assert abs(expected - before[0]) <= timedelta(hours=1), words
    elif kind == of_past:
        assert named_span(past, at.timestamp(), zone)[0] == spans.before[0], words
    if spans.rest:
        assert (spans.now[1], min(asked[1], last)) == spans.rest, words


def test_spans_equal_the_calendar() -> None:
    """A hundred random questions have the spans that a calendar gives."""
    for seed in range(100):
        check(seed)


@pytest.mark.proof
def test_spans_equal_the_calendar_in_many_questions() -> None:
    for seed in range(3000):
        check(seed)


@pytest.mark.parametrize(
    ("since", "until", "text"),
    [
        ("2026-11-18T00:00", "2026-11-18T10:00", "18 Nov until 10:00"),
        ("2026-11-16T08:00", "2026-11-18T10:00", "16 Nov 08:00 to 18 Nov 10:00"),
        ("2026-11-16T08:00", "2026-11-16T10:00", "16 Nov 08:00 to 10:00"),
        ("2026-10-01T00:00", "2026-11-01T00:00", "1 to 31 Oct"),
        ("2026-11-18T00:00", "2026-11-19T00:00", "18 Nov"),
        ("2026-10-29T00:00", "2026-11-18T10:00", "29 Oct to 18 Nov 10:00"),
        ("2025-10-01T00:00", "2025-11-01T00:00", "1 to 31 Oct 2025"),
        ("2025-12-20T00:00", "2026-01-05T00:00", "20 Dec 2025 to 4 Jan"),
    ],
)
def test_a_span_is_written_to_the_minute(since: str, until: str, text: str) -> None:
    span = [datetime.fromisoformat(edge).replace(tzinfo=UTC) for edge in (since, until)]
    assert text == span_text((span[0], span[1]), datetime(2026, 11, 20, tzinfo=UTC).timestamp())


def test_months_have_the_days_of_the_calendar() -> None:
    """In each month, the whole month before has all its days."""
    for month in range(1, 13):
        spans = compared("last_month", PREVIOUS, f"2026-{month:02}-15T10:20")
        days = [monthrange(span[0].year, span[0].month)[1] for span in (spans.now, spans.before)]
        assert days == [(span[1] - span[0]).days for span in (spans.now, spans.before)]


@pytest.mark.parametrize(
    ("day", "text"),
    [("2026-12-03", "3 Dec, 10:11"), ("2027-01-03", "3 Jan, 10:11"), ("2025-12-03", "3 Dec 2025, 10:11")],
)
def test_a_time_of_a_title_has_a_year_only_if_it_is_far(day: str, text: str) -> None:
    """A title writes a time to the minute, with the year if it is over half a year away."""
    moment, now = (datetime.fromisoformat(f"{each}T10:11:12Z").timestamp() for each in (day, "2026-11-20"))
    assert text == minute_text(moment, now)
