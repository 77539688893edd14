"""
Rollups: sums of days with fewer dimensions, or of several weeks, so that a query reads fewer rows.

A background task makes and marks them. Any change of a day removes the marks of its rollups. A query uses
marked rollups, and daily sums for the rest, so its result does not depend on which rollups exist.

Rollups of billed costs are made from billed days in the same way. Their numbers begin at BILLED_ROLLUPS.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import product

from spool.ledger.dimensions import OF_BILLS, PRICED_BY
from spool.ledger.ledger_rows import LedgerRows, Span
from spool.ledger.queries import CostQuery
from spool.ledger.sums import BILLED_ROLLUPS, DAY_S, FOUR_WEEKS_S, ROLLUP_WIDTHS, WEEK_S, period_start

RollupKey = tuple[int, int, int]  # a rollup: number, width, start


@dataclass(frozen=True, kw_only=True)
class Rollup:
    """
    A kind of rollup, which adds up days by `dimensions` (all and tags if empty), status and cost source.
    `widths`: periods in seconds. `recent`: a further width (0: none) that only the last RECENT_S have.
    """

    number: int
    dimensions: tuple[str, ...]
    widths: tuple[int, ...]  # longest first
    recent: int = 0

    def covers(self, names: Collection[str]) -> bool:
        return not self.dimensions or set(names) <= {*self.dimensions, *ALWAYS}


ALWAYS = ("status", "cost_source")
# The last 30 days and the same weekdays before.
RECENT_S = 10 * WEEK_S
# Smallest first. For all days, rollups by user (a third of the days' rows) and by week with all dimensions (a
# third of the days' rows) would take too much space.
ROLLUPS = (
    Rollup(
        number=5,
        # all that prices depend on, and the source
        dimensions=("model", "request_model", "provider", "source", "region", *PRICED_BY),
        widths=(FOUR_WEEKS_S, WEEK_S, DAY_S),
    ),
    Rollup(number=2, dimensions=("team",), widths=(FOUR_WEEKS_S, WEEK_S, DAY_S)),
    Rollup(number=3, dimensions=("user", "team"), widths=(FOUR_WEEKS_S, WEEK_S), recent=DAY_S),
    Rollup(number=4, dimensions=(), widths=(FOUR_WEEKS_S,), recent=WEEK_S),
)
OF_BILLED = tuple(replace(rollup, number=BILLED_ROLLUPS + rollup.number, recent=0) for rollup in ROLLUPS)
# dimensions that exist only in rollups of billed costs, and one that is missing there
_KEPT_APART, _CORRECTS = ("charge", "basis"), "corrects"


class RollupDivision:
    """
    The division of a time range into rollups and days that reads the fewest rows.

    `longest`: the longest width to use, DAY_S if each day needs its own exchange rate.
    """

    def __init__(
        self, ledger_rows: LedgerRows, query: CostQuery, since_s: int, until_s: int, *, longest: int
    ) -> None:
        choices = (
            _widths_and_numbers_of_billed_rollups(stored_dimension_names(query))
            if query.arranged
            else _widths_and_numbers_of_usable_rollups(stored_dimension_names(query))
        )
        self._choices = [choice for choice in choices if choice[0] <= longest]
        self._made: Collection[RollupKey] = ()
        if until_s - since_s >= DAY_S:
            self._made = ledger_rows.valid_rollup_keys(since_s, until_s)

    def split_days_into_rollups(self, first_start: int, end_start: int) -> Iterator[Span]:
        """
        Yield the rollups and single days that cover a range of days. `end_start` may be within the last day if the
        rest of it has no sums.
        """
        run_start, current = first_start, (0, 0)
        at = first_start
        while at < end_start:
            choice = self._widest_rollup_at(at, end_start)
            if choice != current and run_start < at:
                yield current[0], run_start, at, current[1]
                run_start = at
            current = choice
            at += choice[0]
        yield current[0], run_start, end_start, current[1]

    def _widest_rollup_at(self, start: int, end_start: int) -> tuple[int, int]:
        for width, number in self._choices if self._made else ():
            if (number, width, start) in self._made and start + width <= end_start:
                return width, number
        return DAY_S, 0


def _widths_and_numbers_of_usable_rollups(dimension_names: Collection[str]) -> list[tuple[int, int]]:
    return [
        (width, rollup.number)
        for rollup in ROLLUPS
        if rollup.covers(dimension_names)
        for width in (*rollup.widths, *((rollup.recent,) if rollup.recent else ()))
    ]


def _widths_and_numbers_of_billed_rollups(needed_dimensions: frozenset[str]) -> list[tuple[int, int]]:
    """
    Return (width, number) of the rollups that have these dimensions. Without dimensions of calls, only widths
    from a week on are used, because a billed day then has fewer rows than its rollup.
    """
    shortest = WEEK_S if needed_dimensions <= {*OF_BILLS} else DAY_S
    needed_dimensions -= {*_KEPT_APART}
    usable = [
        rollup
        for rollup in OF_BILLED
        if rollup.covers(needed_dimensions) and _CORRECTS not in needed_dimensions
    ]
    return [(width, rollup.number) for rollup in usable for width in rollup.widths if width >= shortest]


def stored_dimension_names(query: CostQuery) -> frozenset[str]:
    source_names = set[str]()
    for name in query.used_dimensions:
        source_names.update(query.derived[name].sources if name in query.derived else (name,))
    return frozenset(source_names)


def next_missing_rollup(ledger_rows: LedgerRows, daily_until: int, now: int) -> RollupKey | None:
    """
    Return the newest rollup (sum of several days) that is not stored yet, or None. Rollups end before
    `daily_until`; rollups of billed costs add up finished days and weeks.
    """
    missing_rollup = None
    first = ledger_rows.first_start_since(DAY_S, 0)
    if first is not None and first < daily_until:
        existing = set(ledger_rows.valid_rollup_keys(period_start(FOUR_WEEKS_S, first), daily_until))
        missing_rollup = next(
            (candidate for candidate in _all_rollups(first, daily_until) if candidate not in existing), None
        )
    return missing_rollup or _next_missing_billed_rollup(ledger_rows, now)


def drop_old_rollups(ledger_rows: LedgerRows, daily_until: int) -> None:
    """
    Delete rollups of the widths that exist only for recent days, if they are older than RECENT_S before
    `daily_until`.
    """
    for rollup in ROLLUPS:
        if rollup.recent:
            ledger_rows.drop_rollups(rollup.number, rollup.recent, daily_until - RECENT_S)


def _all_rollups(first_start: int, daily_until: int) -> Iterator[RollupKey]:
    for rollup in ROLLUPS:
        if rollup.recent:
            last = period_start(rollup.recent, daily_until) - rollup.recent
            for start in range(last, max(first_start, daily_until - RECENT_S) - 1, -rollup.recent):
                yield rollup.number, rollup.recent, start
    for width in reversed(ROLLUP_WIDTHS):
        numbers = [rollup.number for rollup in ROLLUPS if width in rollup.widths]
        last = period_start(width, daily_until) - width
        for start, number in product(range(last, period_start(width, first_start) - 1, -width), numbers):
            yield number, width, start


def _next_missing_billed_rollup(ledger_rows: LedgerRows, now: int) -> RollupKey | None:
    days = ledger_rows.starts_of_billed_days(0, now)
    if not days:
        return None
    existing = set(ledger_rows.valid_rollup_keys(period_start(FOUR_WEEKS_S, days[0]), now))
    for width in reversed(ROLLUP_WIDTHS):
        numbers = [rollup.number for rollup in OF_BILLED if width in rollup.widths]
        starts = {period_start(width, day) for day in days}
        for start, number in product(sorted(starts, reverse=True), numbers):
            if start + width <= now and (number, width, start) not in existing:
                return number, width, start
    return None


def make_next_rollup(ledger_rows: LedgerRows, daily_until: int, now: int) -> bool:
    next_rollup = next_missing_rollup(ledger_rows, daily_until, now)
    if next_rollup is None:
        return False
    number, width, start = next_rollup
    ledger_rows.make_rollup(number, rollup_dimensions(number), width, start)
    return True


def rollup_dimensions(rollup_number: int) -> tuple[str, ...]:
    [dimensions] = [rollup.dimensions for rollup in (*ROLLUPS, *OF_BILLED) if rollup.number == rollup_number]
    return (*dimensions, *ALWAYS) if dimensions else ()


def is_valid_rollup_different(ledger_rows: LedgerRows, rollup_key: RollupKey) -> bool:
    number, width, start = rollup_key
    if rollup_key not in ledger_rows.valid_rollup_keys(start, start + 1):
        return False
    return ledger_rows.is_rollup_different(number, rollup_dimensions(number), width, start)


def invalidate_differing_rollups(ledger_rows: LedgerRows, rollup_keys: Collection[RollupKey]) -> int:
    wrong = [
        rollup_place for rollup_place in rollup_keys if is_valid_rollup_different(ledger_rows, rollup_place)
    ]
    for billed in (False, True):
        ledger_rows.invalidate_rollups(
            [at for number, _, at in wrong if (number > BILLED_ROLLUPS) == billed], billed=billed
        )
    return len(wrong)
