"""Which time a question is about: words for spans that models know, or days."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec

from gateway.money.costs.times import parse_moment
from spool.errors import Invalid
from spool.ledger.periods import Span, span
from spool.ledger.queries import end_of_hour

ZONE = "UTC"
RangeWord = Literal[
    "today",
    "yesterday",
    "last_7_days",
    "last_30_days",
    "last_90_days",
    "month_to_date",
    "last_month",
    "year_to_date",
]
RANGES_OF_WORDS: Mapping[RangeWord, str] = {
    "last_7_days": "last_7d",
    "last_30_days": "last_30d",
    "last_90_days": "last_90d",
    "month_to_date": "mtd",
    "last_month": "last_month",
    "year_to_date": "ytd",
}


class Days(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The last day is part of the span; without one it goes up to now."""

    start: Annotated[str, msgspec.Meta(description="First day, YYYY-MM-DD (UTC)")]
    end: Annotated[str | None, msgspec.Meta(description="Last day, included; default: today")] = None


DateRange = Annotated[
    RangeWord | Days,
    msgspec.Meta(
        description="A named range, or {start, end} as days of UTC; last_7_days and the like include today"
    ),
]


def bounds(given: RangeWord | Days, now: float) -> Span:
    """From when until before when. Invalid for days that are none or end before they begin."""
    if isinstance(given, Days):
        since = parse_moment("date_range.start", given.start)
        until = end_of_hour(now) if given.end is None else parse_moment("date_range.end", given.end, end=True)
    elif given in RANGES_OF_WORDS:
        since, until = span(RANGES_OF_WORDS[given], now)
    else:
        midnight = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        is_today = given == "today"
        since, until = (midnight, end_of_hour(now)) if is_today else (midnight - timedelta(days=1), midnight)
    if since >= until:
        raise Invalid("date_range must begin before it ends")
    return since, until


def days_text(since: datetime, until: datetime) -> str:
    """The days of a span, as a sentence names them."""
    first = since.astimezone(UTC).date()
    last = (until.astimezone(UTC) - timedelta(microseconds=1)).date()
    return f"{first} to {last}" if first != last else f"{first}"
