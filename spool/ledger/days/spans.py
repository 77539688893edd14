"""Choice and reading of the stored sums (hours, days and rollups) that cover a query's periods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from spool.errors import NotKept
from spool.ledger.ledger_rows import LedgerRows, Span
from spool.ledger.sums import DAY_S, FOUR_WEEKS_S, HOUR_S, period_start
from spool.ledger.work import ROLLUP
from spool.record import CURRENCY, format_to_second

if TYPE_CHECKING:
    from spool.ledger.days.rollups import RollupDivision
    from spool.ledger.queries import CostQuery

# -- resolution of the stored sums: hours, or whole days before a border ------------------------------------

PER_DAY = "costs are stored per whole day in UTC only"  # start of the message of NotKept


def check_no_sum_is_split(ledger_rows: LedgerRows, hourly_since: int, period_bounds: Iterable[float]) -> None:
    """
    Raise NotKept if a moment (epoch seconds) lies inside an hour with sums, or inside a day before `hourly_since`.
    """
    for instant in period_bounds:
        width = HOUR_S if instant >= hourly_since else DAY_S
        start = int(instant // width) * width
        if start != instant and ledger_rows.dimension_set_numbers_in_period(width, start):
            raise NotKept(
                f"{_whole_hours_hint() if width == HOUR_S else _days_hint(hourly_since)}. Your period splits a "
                f"stored sum at {format_to_second(instant)}"
            )


def check_hourly_sums_exist(hourly_since: int, since: float) -> None:
    """Raise NotKept if hourly sums from `since` on (epoch seconds) are deleted."""
    if since < hourly_since:
        raise NotKept(_hourly_start_hint(hourly_since))


def _hourly_start_hint(hourly_since: int) -> str:
    since = format_to_second(hourly_since)
    return f"before {since}, {PER_DAY}. Choose a start of {since} or later"


def _days_hint(hourly_since: int) -> str:
    return f"{_hourly_start_hint(hourly_since)}, or periods that begin and end at midnight UTC"


def _whole_hours_hint() -> str:
    return (
        "costs are stored per whole hour in UTC. Choose periods that begin and end on the hour, in a "
        "time zone with a whole-hour offset from UTC"
    )


Spans = Callable[[int, int], Iterable[Span]]  # function that yields the sums that cover a period


@dataclass(slots=True, kw_only=True)
class StoredSumsQuery:
    """One read of stored sums: for one period, or for adjacent periods that are one hour or day each."""

    width: int
    low: int
    high: int
    rollup: int  # number of the rollup that has the sums, or 0
    periods: list[datetime]  # starts, ascending

    @property
    def span(self) -> Span:
        return self.width, self.low, self.high, self.rollup

    def period_at(self, start: int) -> datetime:
        """Return the start of the period that contains the sum that begins at `start`."""
        return self.periods[(start - self.low) // self.width if len(self.periods) > 1 else 0]


def plan_reads(time_ranges: Iterable[tuple[datetime, datetime]], spans: Spans) -> Iterator[StoredSumsQuery]:
    """
    Yield the reads for all periods, in order.

    Adjacent periods of exactly one hour or day share a read. Otherwise two weeks by hour would need 336
    statements.
    """
    open_run: StoredSumsQuery | None = None
    for start, end in time_ranges:
        for width, low, high, rollup in spans(int(start.timestamp()), int(end.timestamp())):
            is_one_sum = high - low == width and period_start(width, low) == low
            kind = (width, rollup, low)
            if is_one_sum and open_run and kind == (open_run.width, open_run.rollup, open_run.high):
                open_run.high = high
                open_run.periods.append(start)
                continue
            if open_run is not None:
                yield open_run
            open_run = StoredSumsQuery(width=width, low=low, high=high, rollup=rollup, periods=[start])
            if not is_one_sum:
                yield open_run
                open_run = None
    if open_run is not None:
        yield open_run


def group_reads(
    span_questions: Iterable[StoredSumsQuery], max_group_size: int
) -> Iterator[list[StoredSumsQuery]]:
    group: list[StoredSumsQuery] = []
    for question in span_questions:
        if group and (question.periods != group[0].periods or len(group) == max_group_size):
            yield group
            group = []
        group.append(question)
    if group:
        yield group


def plan_period_reads(
    ledger_rows: LedgerRows,
    query: CostQuery,
    time_ranges: Sequence[tuple[datetime, datetime]],
    state_values: Mapping[str, int],
) -> Iterator[StoredSumsQuery]:
    """
    Yield the reads that cover a query's periods with the fewest sums.

    Raises NotKept if a period begins or ends inside an hour or day stored as one sum.
    """
    moments = distinct_moments(time_ranges)
    check_no_sum_is_split(ledger_rows, state_values["hourly"], moments)
    if query.unit_of_work is not None:
        # one span for hours and days together, because no call is in both
        return plan_reads(time_ranges, lambda start, end: [(HOUR_S, start, end, ROLLUP)])
    spans: Spans = partial(
        spans_of_daily_and_hourly_sums, daily_until=state_values["daily"], hourly_since=state_values["hourly"]
    )
    low, high = int(min(moments, default=0)), int(max(moments, default=0))
    if low + DAY_S <= min(high, state_values["daily"]):
        spans = _spans_with_rollups(ledger_rows, query, low, high, spans)
    return plan_reads(time_ranges, spans)


def divide_billed_periods(
    ledger_rows: LedgerRows, query: CostQuery, time_ranges: Sequence[tuple[datetime, datetime]], spans: Spans
) -> Iterator[StoredSumsQuery]:
    """
    Yield the reads that cover the periods of a query for billed costs. `spans`: divides a time range into
    whole days.
    """
    moments = distinct_moments(time_ranges)
    low, high = int(min(moments, default=0)), int(max(moments, default=0))
    if low + DAY_S <= high:
        spans = _spans_with_rollups(ledger_rows, query, low, high, spans)
    return plan_reads(time_ranges, spans)


def _spans_with_rollups(
    ledger_rows: LedgerRows, query: CostQuery, low: int, high: int, spans: Spans
) -> Spans:
    from spool.ledger.days.rollups import RollupDivision

    longest = DAY_S if query.currency != CURRENCY else FOUR_WEEKS_S
    return partial(
        replace_by_rollups,
        division=RollupDivision(ledger_rows, query, low, high, longest=longest),
        spans=spans,
    )


def distinct_moments(time_ranges: Iterable[tuple[datetime, datetime]]) -> Sequence[float]:
    return list(dict.fromkeys(moment.timestamp() for period in time_ranges for moment in period))


def replace_by_rollups(start: int, end: int, *, division: RollupDivision, spans: Spans) -> Iterator[Span]:
    for span in spans(start, end):
        if span[0] == DAY_S:
            yield from division.split_days_into_rollups(span[1], span[2])
        else:
            yield span


def spans_of_daily_and_hourly_sums(
    start: int, end: int, *, daily_until: int, hourly_since: int
) -> Iterator[Span]:
    """
    Yield the whole days before `daily_until` that have daily sums, and hours elsewhere.

    `check_no_sum_is_split` has already rejected queries that split an hour or day with sums.
    """
    first_day = -(-start // DAY_S) * DAY_S
    last_day = max(min(end, daily_until) // DAY_S * DAY_S, min(end, hourly_since))
    if last_day <= first_day:
        yield HOUR_S, start, end, 0
        return
    yield DAY_S, first_day, last_day, 0
    for low, high in ((start, first_day), (last_day, end)):
        if low < high:
            yield HOUR_S, low, high, 0
