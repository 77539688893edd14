"""
Rollups: sums of days with fewer dimensions, or sums over several weeks, so that a query reads fewer rows.

A background task makes rollups from the sums of days. Any change of a day removes the marks of the
rollups that include it. A query uses only marked rollups and reads days for the rest, so its result does
not depend on rollups.

Billed costs have rollups of the same kinds, made from their own days. Their numbers begin at BILLED_ROLLUPS.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import product

from spool.ledger.ledger_rows import LedgerRows, Span
from spool.ledger.queries import OF_BILLS, CostQuery
from spool.ledger.sums import BILLED_ROLLUPS, DAY_S, FOUR_WEEKS_S, ROLLUP_WIDTHS, WEEK_S, begin

Made = tuple[int, int, int]  # number of the rollup, width, start


@dataclass(frozen=True, kw_only=True)
class Rollup:
    """
    A kind of rollup. It keeps `dimensions` in addition to status and cost source. If `dimensions` is empty,
    it keeps all dimensions and tags. Rollups of the width `recent` are made only of the last RECENT_S.
    """

    number: int
    dimensions: tuple[str, ...]
    widths: tuple[int, ...]  # widths of the rollup, longest first
    recent: int = 0

    def covers(self, names: Collection[str]) -> bool:
        return not self.dimensions or set(names) <= {*self.dimensions, *ALWAYS}


ALWAYS = ("status", "cost_source")
# Age of the days with further rollups. They cover the last 30 days and the same weekdays before.
RECENT_S = 10 * WEEK_S
# Smallest first. Days by user have a third of the rows of the days themselves, and weeks by all dimensions have
# a third of the rows of their days, so of all days they would take too much space.
ROLLUPS = (
    Rollup(
        number=1,
        dimensions=("model", "request_model", "provider", "source", "region"),
        widths=(FOUR_WEEKS_S, WEEK_S, DAY_S),
    ),
    Rollup(number=2, dimensions=("team",), widths=(FOUR_WEEKS_S, WEEK_S, DAY_S)),
    Rollup(number=3, dimensions=("user", "team"), widths=(FOUR_WEEKS_S, WEEK_S), recent=DAY_S),
    Rollup(number=4, dimensions=(), widths=(FOUR_WEEKS_S,), recent=WEEK_S),
)
OF_BILLED = tuple(replace(rollup, number=BILLED_ROLLUPS + rollup.number, recent=0) for rollup in ROLLUPS)
# dimensions that exist only in rollups of billed costs, and one that these rollups lack
_KEPT_APART, _CORRECTS = ("charge", "basis"), "corrects"


class Division:
    """
    Division of a query's time range into rollups and days, so that the fewest rows are read.

    `longest`: the longest width to use, DAY_S if each day needs its own exchange rate.
    """

    def __init__(self, rows: LedgerRows, query: CostQuery, since: int, until: int, *, longest: int) -> None:
        choices = (
            _usable_billed_rollups(stored_sources(query))
            if query.arranged
            else _usable_rollups(stored_sources(query))
        )
        self._choices = [choice for choice in choices if choice[0] <= longest]
        self._made: Collection[Made] = ()
        if until - since >= DAY_S:
            self._made = rows.marked_rollups(since, until)

    def divide_days(self, low: int, high: int) -> Iterator[Span]:
        """Divide a range of whole days. The last day may be cut if it has no sums after the cut."""
        run_start, current = low, (0, 0)
        at = low
        while at < high:
            choice = self._widest_rollup_at(at, high)
            if choice != current and run_start < at:
                yield current[0], run_start, at, current[1]
                run_start = at
            current = choice
            at += choice[0]
        yield current[0], run_start, high, current[1]

    def _widest_rollup_at(self, at: int, high: int) -> tuple[int, int]:
        """
        Return width and number of the rollup to use from `at` on. If none fits, return the width of a day
        and number 0.
        """
        for width, number in self._choices if self._made else ():
            if (number, width, at) in self._made and at + width <= high:
                return width, number
        return DAY_S, 0


def _usable_rollups(named: Collection[str]) -> list[tuple[int, int]]:
    """Return widths and numbers of the rollups that have these dimensions, best first."""
    return [
        (width, rollup.number)
        for rollup in ROLLUPS
        if rollup.covers(named)
        for width in (*rollup.widths, *((rollup.recent,) if rollup.recent else ()))
    ]


def _usable_billed_rollups(named: frozenset[str]) -> list[tuple[int, int]]:
    """
    Return widths and numbers of billed rollups that have these dimensions, best first.

    If no dimension of calls is named, rollups of single days are left out, because the day itself has fewer rows.
    """
    shortest = WEEK_S if named <= {*OF_BILLS} else DAY_S
    named -= {*_KEPT_APART}
    usable = [rollup for rollup in OF_BILLED if rollup.covers(named) and _CORRECTS not in named]
    return [(width, rollup.number) for rollup in usable for width in rollup.widths if width >= shortest]


def stored_sources(query: CostQuery) -> frozenset[str]:
    """Return the stored dimensions and tags that a query needs."""
    source_names = set[str]()
    for name in query.used_dimensions:
        source_names.update(query.derived[name].sources if name in query.derived else (name,))
    return frozenset(source_names)


def next_missing_rollup(rows: LedgerRows, daily: int, now: int) -> Made | None:
    """
    Return the newest rollup that is not made yet, or None if all are made.

    It covers days before `daily`. For billed costs, it covers finished days and weeks.
    """
    missing_rollup = None
    first = rows.first_start_since(DAY_S, 0)
    if first is not None and first < daily:
        existing = set(rows.marked_rollups(begin(FOUR_WEEKS_S, first), daily))
        missing_rollup = next(
            (candidate for candidate in _all_rollups(first, daily) if candidate not in existing), None
        )
    return missing_rollup or _missing_billed(rows, now)


def drop_old(rows: LedgerRows, daily: int) -> None:
    """Delete the rollups of recent days that are no longer recent."""
    for rollup in ROLLUPS:
        if rollup.recent:
            rows.drop_rollups(rollup.number, rollup.recent, daily - RECENT_S)


def _all_rollups(first: int, daily: int) -> Iterator[Made]:
    for rollup in ROLLUPS:
        if rollup.recent:
            last = begin(rollup.recent, daily) - rollup.recent
            for start in range(last, max(first, daily - RECENT_S) - 1, -rollup.recent):
                yield rollup.number, rollup.recent, start
    for width in reversed(ROLLUP_WIDTHS):
        numbers = [rollup.number for rollup in ROLLUPS if width in rollup.widths]
        last = begin(width, daily) - width
        for start, number in product(range(last, begin(width, first) - 1, -width), numbers):
            yield number, width, start


def _missing_billed(rows: LedgerRows, now: int) -> Made | None:
    days = rows.billed_starts(0, now)
    if not days:
        return None
    existing = set(rows.marked_rollups(begin(FOUR_WEEKS_S, days[0]), now))
    for width in reversed(ROLLUP_WIDTHS):
        numbers = [rollup.number for rollup in OF_BILLED if width in rollup.widths]
        starts = {begin(width, day) for day in days}
        for start, number in product(sorted(starts, reverse=True), numbers):
            if start + width <= now and (number, width, start) not in existing:
                return number, width, start
    return None


def make_next(rows: LedgerRows, daily: int, now: int) -> bool:
    """Make one missing rollup. Return False if none is missing."""
    next_rollup = next_missing_rollup(rows, daily, now)
    if next_rollup is None:
        return False
    number, width, start = next_rollup
    rows.make_rollup(number, rollup_dimensions(number), width, start)
    return True


def rollup_dimensions(number: int) -> tuple[str, ...]:
    """Return the dimensions that a rollup keeps, empty if all."""
    [dimensions] = [rollup.dimensions for rollup in (*ROLLUPS, *OF_BILLED) if rollup.number == number]
    return (*dimensions, *ALWAYS) if dimensions else ()


def is_wrong_rollup(rows: LedgerRows, place: Made) -> bool:
    """Return True if a rollup is marked as valid but differs from the sums of its days."""
    number, width, start = place
    if place not in rows.marked_rollups(start, start + 1):
        return False
    return rows.differs_rollup(number, rollup_dimensions(number), width, start)


def unmark_differing(rows: LedgerRows, places: Collection[Made]) -> int:
    """Remove the marks of rollups that differ from their days. Return their number."""
    wrong = [rollup_place for rollup_place in places if is_wrong_rollup(rows, rollup_place)]
    for billed in (False, True):
        rows.unmark_rollups(
            [at for number, _, at in wrong if (number > BILLED_ROLLUPS) == billed], billed=billed
        )
    return len(wrong)
