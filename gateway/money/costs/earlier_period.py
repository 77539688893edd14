"""The two time ranges of a comparison of costs, whether the earlier one is known, and the amounts left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from gateway.money.costs.question import check_span
from gateway.money.costs.times import parse_moment
from spool.errors import Invalid
from spool.ledger.dimensions import TOTAL
from spool.ledger.periods import (
    PREVIOUS,
    RANGES,
    SAME_WEEKDAYS,
    ComparedSpans,
    Span,
    compared_spans,
    period_beginning,
    span_text,
)
from spool.ledger.queries import CostQuery, CostsLedger, next_full_hour
from spool.ledger.slices import SlicedLedger
from spool.record import CURRENCY, utc_iso

# imported only for types, because commands use words of this module without the storage
if TYPE_CHECKING:
    from gateway.money.costs.reader import CostReader

# the start of hourly sums if there are none, because bills have only whole days, and if all hours are stored
_NEVER, _ALWAYS = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
_DAY = timedelta(days=1)
WHOLE, PART, NONE, TOO_EARLY = ("whole", "part", "none", "too_early")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPeriodCoverage:
    """
    How much of an earlier time range the totals or bills cover, whatever the filters. Only a range in the
    state WHOLE is compared.

    `known_from` is the first counted hour, or the first billed day. `comparable_days` is the largest number
    of days up to today that can be compared with the same number of days before, or 0. In the state TOO_EARLY, the
    comparison begins at `begins_at`.
    """

    state: str
    known_from: datetime | None
    comparable_days: int
    is_billed: bool = False
    begins_at: datetime | None = None

    @property
    def is_fully_covered(self) -> bool:
        return self.state == WHOLE

    @property
    def known_from_text(self) -> str | None:
        return None if self.known_from is None else utc_iso(self.known_from.timestamp())

    def to_fields(self) -> dict[str, object]:
        return {
            "state": self.state,
            "known_from": self.known_from_text,
            "comparable_days": self.comparable_days,
            "begins_at": self.begins_at and self.begins_at.isoformat(),
        }


async def find_earlier_period_coverage(
    asked: CostQuery, spans: ComparedSpans, ledger: SlicedLedger, now: float
) -> EarlierPeriodCoverage:
    """Return how far back the visible calls reach, so that no old call of others changes the answer."""
    query = replace(asked, since=spans.before[0], until=spans.before[1])
    if query.arranged:
        days = [
            day.day for day in await ledger.billed_days(0, int(now)) if day.source and not day.is_outside_bill
        ]
        first = datetime.fromtimestamp(min(days), UTC) if days else None
    else:
        first = await ledger.first_hour_with_calls()
    return EarlierPeriodCoverage(
        state=TOO_EARLY if spans.is_too_early else _past_state(query, first),
        known_from=first and first.astimezone(query.zone),
        comparable_days=0 if first is None else _comparable_days(query, first, now),
        is_billed=bool(query.arranged),
        begins_at=spans.begins_at if spans.is_too_early else None,
    )


def _past_state(query: CostQuery, first: datetime | None) -> str:
    if first is None or query.until <= first:
        return NONE
    return WHOLE if first <= query.since else PART


def _comparable_days(query: CostQuery, first: datetime, now: float) -> int:
    midnight = period_beginning(datetime.fromtimestamp(now, query.zone), "daily")

    def is_known(count: int) -> bool:
        days = midnight - _DAY * (count - 1), next_full_hour(now)
        return compared_spans(days, PREVIOUS, now, query.zone, _ALWAYS).before[0] >= first

    # the search starts with the largest possible number of days, because the previous month may have more
    # days
    most = max(0, (midnight + _DAY - first) // (2 * _DAY))
    return next(filter(is_known, range(most, 0, -1)), 0)


CompareTimes = Callable[[CostQuery], ComparedSpans]


async def comparison_times(
    reader: CostReader,
    now: float,
    *,
    against: str | Span,
    range_name: str | None = None,
    parameter_name: str = "against",
) -> CompareTimes:
    """
    Return the function that finds the spans of a comparison. `against` is SAME_WEEKDAYS, PREVIOUS, a name of
    RANGES, FIRST..LAST, or a span. `range_name` is the name of the query's own range, if it has one.

    FIRST and LAST are days or times. The function raises Invalid or a Refusal that names the parameter
    `parameter_name` for anything else.
    """
    # whole: the start of the hourly sums, which says nothing about a call
    hours_since = await reader.whole.hourly_sums_start()

    def spans_of_query(query: CostQuery) -> ComparedSpans:
        earlier = _parse_earlier_time(against, parameter_name, query) if isinstance(against, str) else against
        if not isinstance(earlier, str):
            check_span(replace(query, since=earlier[0], until=earlier[1]))
        spans = compared_spans(
            range_name or (query.since, query.until),
            earlier,
            now,
            query.zone,
            _NEVER if query.arranged else hours_since,
        )
        if not spans.is_too_early:
            check_span(replace(query, since=spans.before[0], until=spans.before[1]))
        return spans

    return spans_of_query


def _parse_earlier_time(text: str, parameter_name: str, query: CostQuery) -> str | Span:
    first, dots, last = text.partition("..")
    if dots:
        since = parse_moment(parameter_name, first, zone=query.zone)
        until = parse_moment(parameter_name, last, zone=query.zone, end=True)
        return since, until
    choices = (SAME_WEEKDAYS, PREVIOUS, *RANGES)
    if text not in choices:
        raise Invalid(
            f"{parameter_name} must be one of {', '.join(choices)}, or two days such as 2026-10-01..2026-10-31"
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTimes:
    """
    The spans of a comparison, with the amounts of the requested range that are not compared. `since_cut` is
    the amount after the compared span, or None if the range ends with it. `rest_cost` is the part of it that
    has no counterpart.
    """

    spans: ComparedSpans
    at: float
    currency: str
    since_cut: str | None
    rest_cost: str | None

    @property
    def texts(self) -> tuple[str, str]:
        return self.spans.texts(self.at)

    @property
    def cut_text(self) -> str:
        """Write the end of the compared span: the hour if it is today, else the day as well."""
        cut = self.spans.now[1]
        is_today = cut.date() == datetime.fromtimestamp(self.at, cut.tzinfo).date()
        return f"{cut:%H:%M}" if is_today else f"{cut.day} {cut:%b %H:%M}"

    @property
    def rest(self) -> str | None:
        if self.spans.rest is None or self.rest_cost is None:
            return None
        amount = f"{Decimal(self.rest_cost):,.2f}"
        money = f"${amount}" if self.currency == CURRENCY else f"{amount} {self.currency}"
        return f"{span_text(self.spans.rest, self.at)}: {money} has no counterpart"

    def to_fields(self) -> dict[str, object]:
        now, before = (
            {"from": since.isoformat(), "to": until.isoformat(), "text": text}
            for (since, until), text in zip((self.spans.now, self.spans.before), self.texts, strict=True)
        )
        return {
            "now": now,
            "before": before,
            "rest": self.rest,
            "grain": self.spans.grain,
            "since_cut": self.since_cut,
        }


async def read_compared_times(
    asked: CostQuery, spans: ComparedSpans, ledger: CostsLedger, at: float
) -> ComparedTimes:
    """Return the spans with the amounts of the requested range that are left out."""
    after = (spans.now[1], asked.until)
    left_out = [span if span and span[0] < span[1] else None for span in (after, spans.rest)]
    since_cut, rest_cost = [
        None
        if span is None
        else await _cost_of(ledger, replace(asked, since=span[0], until=span[1], granularity=TOTAL))
        for span in left_out
    ]
    return ComparedTimes(
        spans=spans, at=at, currency=asked.currency, since_cut=since_cut, rest_cost=rest_cost
    )


async def _cost_of(ledger: CostsLedger, query: CostQuery) -> str:
    rows = await ledger.costs(replace(query, group_by=(), kept=None, top=None, measures=("cost",)))
    return next((row.cost for row in rows), "0")


def queries_of_spans(query: CostQuery, spans: ComparedSpans) -> tuple[CostQuery, CostQuery]:
    """Return the query for the later and for the earlier span."""
    now, before = (replace(query, since=since, until=until) for since, until in (spans.now, spans.before))
    return now, before
