"""
Rollups: sums of days by fewer dimensions and over weeks, so that a question goes through fewer of them.

They are made of the sums of days in the background, and any change of a day removes the mark of those that it
is in. A question takes marked ones and days for the rest, so its answer is the same without them. An earlier
release changes days and no marks: `is_current` tells by the state which of the two changed sums last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import product

from spool.ledger.counting import is_current
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery
from spool.ledger.sums import DAY_S, FOUR_WEEKS_S, ROLLUP_WIDTHS, WEEK_S, begin

Span = tuple[int, int, int, int]  # width, low, high, and the number of a rollup or 0
Made = tuple[int, int, int]  # number, width, start


@dataclass(frozen=True, kw_only=True)
class Rollup:
    """`dimensions` are those kept beside status and cost source, empty: all, tags too."""

    number: int
    dimensions: tuple[str, ...]
    widths: tuple[int, ...]  # the longest first

    def covers(self, names: Collection[str]) -> bool:
        return not self.dimensions or set(names) <= {*self.dimensions, *ALWAYS}


ALWAYS = ("status", "cost_source")
# The smallest first. By user or by everything, a day has about as many sums as without a rollup.
ROLLUPS = (
    Rollup(
        number=1,
        dimensions=("model", "request_model", "provider", "source", "region"),
        widths=(FOUR_WEEKS_S, WEEK_S, DAY_S),
    ),
    Rollup(number=2, dimensions=("team",), widths=(FOUR_WEEKS_S, WEEK_S, DAY_S)),
    Rollup(number=3, dimensions=("user", "team"), widths=(FOUR_WEEKS_S, WEEK_S)),
    Rollup(number=4, dimensions=(), widths=(FOUR_WEEKS_S,)),
)


class Division:
    """
    The sums that answer one question with the fewest rows, of the rollups that are made in its time.

    `longest`: days alone, if each day is converted at a rate of its own.
    """

    def __init__(self, rows: LedgerRows, query: CostQuery, since: int, until: int, *, longest: int) -> None:
        named = sources(query)
        usable = [each for each in ROLLUPS if each.covers(named)]
        self._choices = [(w, each.number) for each in usable for w in each.widths if w <= longest]
        self._made: Collection[Made] = ()
        if until - since >= DAY_S and is_current(rows.state()):
            self._made = rows.rollups(since, until)

    def of_days(self, low: int, high: int) -> Iterator[Span]:
        """Divide whole days, of which the last may be cut where it has no sums."""
        begun, taken = low, (0, 0)
        at = low
        while at < high:
            found = self._found(at, high)
            if found != taken and begun < at:
                yield taken[0], begun, at, taken[1]
                begun = at
            taken = found
            at += found[0]
        yield taken[0], begun, high, taken[1]

    def _found(self, at: int, high: int) -> tuple[int, int]:
        """Return the width and the number of the rollup to take from there; those of days without one."""
        for width, number in self._choices if self._made else ():
            if (number, width, at) in self._made and at + width <= high:
                return width, number
        return DAY_S, 0


def sources(query: CostQuery) -> frozenset[str]:
    """Return the ledger's own dimensions and tags that a question needs."""
    found = set[str]()
    for name in query.named:
        found.update(query.derived[name].sources if name in query.derived else (name,))
    return frozenset(found)


def missing(rows: LedgerRows, daily: int) -> Made | None:
    """Return the newest rollup that is not made yet, of days before `daily`; None if all are."""
    first = rows.oldest(DAY_S, 0)
    if first is None or first >= daily:
        return None
    made = set(rows.rollups(begin(FOUR_WEEKS_S, first), daily))
    for width in reversed(ROLLUP_WIDTHS):
        numbers = [each.number for each in ROLLUPS if width in each.widths]
        last = begin(width, daily) - width
        for start, number in product(range(last, begin(width, first) - 1, -width), numbers):
            if (number, width, start) not in made:
                return number, width, start
    return None


def make_next(rows: LedgerRows, daily: int) -> bool:
    """Make one rollup that is missing; False if none is."""
    wanted = missing(rows, daily)
    if wanted is None:
        return False
    number, width, start = wanted
    rows.make_rollup(number, dimensions_of(number), width, start)
    return True


def dimensions_of(number: int) -> tuple[str, ...]:
    """Return the dimensions that the sums of a rollup are kept by; none: all."""
    [found] = [each.dimensions for each in ROLLUPS if each.number == number]
    return (*found, *ALWAYS) if found else ()


def differs(rows: LedgerRows, place: Made) -> bool:
    """True if a rollup has its mark and is not what its days are."""
    number, width, start = place
    if place not in rows.rollups(start, start + 1) or not is_current(rows.state()):
        return False
    return rows.differs_rollup(number, dimensions_of(number), width, start)


def unmark_differing(rows: LedgerRows, places: Collection[Made]) -> int:
    """Remove the marks of those that differ from their days; how many."""
    wrong = [place for place in places if differs(rows, place)]
    rows.unmark_rollups([start for _, _, start in wrong])
    return len(wrong)
