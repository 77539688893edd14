"""
Amounts that belong to no call, as rows of a cost query, so that they add up with the calls of the query.

A day's amounts count at midnight of that date in the query's time zone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, tzinfo
from itertools import accumulate, groupby
from typing import NamedTuple

import msgspec

from gateway.bills.months import CalendarMonth
from spool import money
from spool.ledger.costs import combine_rows
from spool.ledger.dimensions import DerivedDimensions, Group
from spool.ledger.queries import CostQuery, CostRow
from spool.record import CURRENCY
from spool.statements import DAY_S
from spool.turns.question_limit import limit_of_running_query

PeriodPlace = tuple[int, Group]  # place of an amount: index of its period, and its group
DimensionTexts = Mapping[str, str]  # the values of an amount's dimensions, by dimension


class DayAmount(NamedTuple):
    """
    An amount of a day in its own currency (`own`) and in the query's currency (`cost`). `lacking` is the part
    of `own` that has no exchange rate.
    """

    own: int = 0
    cost: int = 0
    lacking: int = 0


class PeriodDayRange(NamedTuple):
    """Consecutive days of one period. `first` and `end` are indexes of days; `end` is excluded."""

    period: int
    first: int
    end: int


@dataclass(slots=True)
class PeriodSum:
    """
    Amounts in units of money. By currency, `charges` are amounts in other currencies, and `lacking` amounts
    without an exchange rate.
    """

    cost: int = 0
    converted: int = 0
    charges: Counter[str] = field(default_factory=Counter)
    lacking: Counter[str] = field(default_factory=Counter)

    def add_amount(self, amount: DayAmount, own_currency: str, currency: str) -> None:
        self.cost += amount.cost
        if own_currency != currency:
            self.converted += amount.cost
            self.lacking[own_currency] += amount.lacking
        if own_currency != CURRENCY:
            self.charges[own_currency] += amount.own

    def to_cost_row(self, start: datetime, group: Group) -> CostRow:
        return msgspec.structs.replace(
            combine_rows([], start=start, group=group),
            cost=money.units_to_text(self.cost),
            converted=money.units_to_text(self.converted),
            charges=_amounts_by_currency(self.charges),
            unconverted=_amounts_by_currency(self.lacking),
        )


def sums_to_rows(sums: Mapping[PeriodPlace, PeriodSum], starts: Sequence[datetime]) -> list[CostRow]:
    """Return the sums as rows, without those that are 0."""
    return [
        amounts.to_cost_row(starts[period], group)
        for (period, group), amounts in sums.items()
        if amounts.cost or any(amounts.lacking.values())
    ]


def check_query_limits(sums: Sized) -> None:
    """Raise AskedTooMuch if the query has too many rows, or takes too long."""
    if limit := limit_of_running_query():
        limit.check_rows(len(sums))
        limit.check_time()


def value_or_empty(values: DimensionTexts, name: str) -> str:
    return values.get(name, "")


def group_if_included(query: CostQuery, derived: DerivedDimensions, values: DimensionTexts) -> Group | None:
    """Return the group of a charge, or None if it does not pass the filters of the query."""

    def dimension_value(name: str) -> str:
        if name in values or name not in derived:
            return values.get(name, "")
        return derived[name].value(tuple(values.get(source, "") for source in derived[name].sources))

    is_included = all(dimension_value(name) in wanted for name, wanted in query.include.items())
    if not is_included or any(dimension_value(name) in unwanted for name, unwanted in query.exclude.items()):
        return None
    return query.shown_group(tuple(dimension_value(name) or None for name in query.group_by))


def running_sums(amounts: Iterable[DayAmount]) -> list[DayAmount]:
    """Return the sums of the first 0, 1, 2 and so on amounts."""
    return [*accumulate(amounts, _add_amounts, initial=DayAmount())]


def _add_amounts(before: DayAmount, amount: DayAmount) -> DayAmount:
    return DayAmount(*map(sum, zip(before, amount, strict=True)))


def day_ranges_by_period(days: range, zone: tzinfo, period_starts: Sequence[float]) -> list[PeriodDayRange]:
    runs = []
    indexes = range(len(days))
    for period, run in groupby(
        indexes, lambda index: bisect_right(period_starts, _midnight_in_zone(days[index], zone)) - 1
    ):
        first, *rest = run
        runs.append(PeriodDayRange(period, first, (rest or [first])[-1] + 1))
    return runs


def begun_days_in_query(query: CostQuery, first_day: int, now: float) -> range:
    """Return the days (UTC) from `first_day` on that have begun and whose midnight is in the time of a query."""
    # without these limits, the query could begin or end outside of the years that dates can have
    since = max(query.since.timestamp(), first_day - 2 * DAY_S)
    until = min(query.until.timestamp(), now + 2 * DAY_S)
    begun = int(now) // DAY_S * DAY_S + DAY_S
    return range(
        max(_first_day_from(since, query.zone), first_day),
        min(_first_day_from(until, query.zone), begun),
        DAY_S,
    )


def _first_day_from(moment: float, zone: tzinfo) -> int:
    """Return the first day whose midnight in a zone is not before a moment. The day is its start in UTC."""
    local = datetime.fromtimestamp(moment, zone)
    day = int(datetime.combine(local.date(), time(), UTC).timestamp())
    return day if _midnight_in_zone(day, zone) >= moment else day + DAY_S


def _midnight_in_zone(day: int, zone: tzinfo) -> float:
    return datetime.combine(datetime.fromtimestamp(day, UTC).date(), time(), zone).timestamp()


def calendar_months(days: range) -> Iterator[CalendarMonth]:
    month = CalendarMonth.at(days[0])
    while month.start <= days[-1]:
        yield month
        month = CalendarMonth.at(month.end)


def _amounts_by_currency(amounts: Mapping[str, int]) -> dict[str, str]:
    return {currency: money.units_to_text(units) for currency, units in sorted(amounts.items()) if units}
