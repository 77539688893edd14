"""Billing cycles of plans, which begin on the day of a month on which a vendor bills. Pure."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

from spool.statements.values import DAY_S


@dataclass(frozen=True, slots=True)
class Cycle:
    """The days of a billing cycle, as epoch seconds: from `start` until before `end`."""

    start: int
    end: int

    @property
    def days(self) -> range:
        return range(self.start, self.end, DAY_S)


def cycles(day: int, start: int, end: int) -> Iterator[Cycle]:
    """
    Yield the cycles that have a day of the time from `start` until before `end`. One begins on the
    `day` of each month, of a month without this day on its last one: the cycles of the 31st begin on 31
    January, 28 February, 31 March.
    """
    at = datetime.fromtimestamp(start, UTC)
    month = at.year * 12 + at.month - 1
    begin = _begin(month, day)
    if begin > start:
        month -= 1
        begin = _begin(month, day)
    while begin < end:
        month += 1
        behind = _begin(month, day)
        yield Cycle(begin, behind)
        begin = behind


def _begin(month: int, day: int) -> int:
    """Return the first moment of a cycle; months are counted from the year 0."""
    year, before = divmod(month, 12)
    _, last = monthrange(year, before + 1)
    found = date(year, before + 1, min(day, last))
    return int(datetime(found.year, found.month, found.day, tzinfo=UTC).timestamp())
