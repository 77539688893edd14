"""The earlier time range with which a cost query is compared, and whether its costs are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from gateway.money.costs.measures import PREVIOUS, SAME_WEEKDAYS
from gateway.money.costs.question import check_span
from gateway.money.costs.times import parse_moment
from spool.errors import Invalid
from spool.ledger.periods import (
    RANGES,
    earlier_same_weekdays_query,
    move_to_whole_days,
    named_span,
    period_beginning,
    preceding_query,
)
from spool.ledger.queries import CostQuery, next_full_hour
from spool.ledger.slices import SlicedLedger
from spool.record import utc_iso

_NEVER = datetime.max.replace(tzinfo=UTC)  # a time that never comes, because bills have only whole days
_DAY = timedelta(days=1)
PASTS = WHOLE, PART, NONE = ("whole", "part", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPeriodCoverage:
    """
    How much of an earlier time range the totals or bills cover, whatever the filters. Only a range in the
    state WHOLE is compared.

    `known_from` is the first counted hour, or the first billed day. `comparable_days` is the largest number
    of days up to today that can be compared with the same number of days before, or 0.
    """

    state: str
    known_from: datetime | None
    comparable_days: int
    is_billed: bool = False

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
        }


async def find_earlier_period_coverage(
    query: CostQuery, ledger: SlicedLedger, now: float
) -> EarlierPeriodCoverage:
    """Return how far back the visible calls reach, so that no old call of others changes the answer."""
    if query.arranged:
        days = [
            day.day for day in await ledger.billed_days(0, int(now)) if day.source and not day.is_outside_bill
        ]
        first = datetime.fromtimestamp(min(days), UTC) if days else None
    else:
        first = await ledger.first_hour_with_calls()
    return EarlierPeriodCoverage(
        state=_past_state(query, first),
        known_from=first and first.astimezone(query.zone),
        comparable_days=0 if first is None else _comparable_days(query, first, now),
        is_billed=bool(query.arranged),
    )


def _past_state(query: CostQuery, first: datetime | None) -> str:
    if first is None or query.until <= first:
        return NONE
    return WHOLE if first <= query.since else PART


def _comparable_days(query: CostQuery, first: datetime, now: float) -> int:
    midnight = period_beginning(datetime.fromtimestamp(now, query.zone), "daily")

    def is_known(count: int) -> bool:
        since = midnight - _DAY * (count - 1)
        return preceding_query(replace(query, since=since, until=next_full_hour(now))).since >= first

    # the search starts with the largest possible number of days, because the previous month may have more
    # days
    most = max(0, (midnight + _DAY - first) // (2 * _DAY))
    return next(filter(is_known, range(most, 0, -1)), 0)


def comparison_query(
    query: CostQuery,
    *,
    comparison_range: str,
    now: float,
    hours_since: datetime,
    parameter_name: str = "against",
    own_range_name: str | None = None,
) -> CostQuery:
    """
    Return the query for the time to compare with. `comparison_range` is SAME_WEEKDAYS, PREVIOUS, a name of
    RANGES, or FIRST..LAST.

    FIRST and LAST are days or times. Before `hours_since`, only whole days of UTC are stored, so a time that
    `comparison_range` implies moves to the nearest midnight. Raises Invalid or a Refusal that names the
    parameter `parameter_name` for anything else.
    """
    first, dots, last = comparison_range.partition("..")
    if dots:
        since = parse_moment(parameter_name, first, zone=query.zone)
        until = parse_moment(parameter_name, last, zone=query.zone, end=True)
        baseline = replace(query, since=since, until=until)
        check_span(baseline)
        return baseline
    if comparison_range in RANGES:
        since, until = named_span(comparison_range, now, query.zone)
        baseline = replace(query, since=since, until=until)
    elif comparison_range == PREVIOUS:
        baseline = preceding_query(query, own_range_name)
    elif comparison_range == SAME_WEEKDAYS:
        baseline = earlier_same_weekdays_query(query, own_range_name)
    else:
        choices = ", ".join((SAME_WEEKDAYS, PREVIOUS, *RANGES))
        raise Invalid(
            f"{parameter_name} must be one of {choices}, or two days such as 2026-10-01..2026-10-31"
        )
    check_span(baseline)
    return move_to_whole_days(baseline, _NEVER if query.arranged else hours_since)
