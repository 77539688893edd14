"""The sums of a day that can be priced, with everything that decides their price and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from spool.ledger.counting import period, state_of
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.repricing import TokenSum, token_sum
from spool.ledger.sums import COUNTS, DAY_S, MONEY, Dimensions, Measures
from spool.turns.ordering import ordered

_REPORTED, _ESTIMATED = (len(COUNTS) + MONEY.index(name) for name in ("reported", "estimated"))


class DaySum(msgspec.Struct, frozen=True, kw_only=True):
    """
    Calls of one day and one set of dimensions. `cost` is what counts of them, in units of
    `spool.ledger.money`.
    """

    day: int  # epoch seconds
    dimensions: Dimensions
    tokens: TokenSum
    cost: int


def sums_of_day(
    rows: LedgerRows, day: int, most: int, chosen: Callable[[Dimensions], bool] | None = None
) -> list[DaySum]:
    """The sums of a day (UTC) that cost something, the most costly first and no more than `most`; None: of all."""
    summed: dict[int, Measures] = {}  # by number
    known: dict[int, Dimensions] = {}
    meters: dict[int, Counter[str]] = {}
    width = width_of_day(rows, day)
    dearest = most if width == DAY_S and chosen is None else 0  # of a day of hours no one hour tells
    for start in range(day, day + DAY_S, width):
        for number, dimensions, measures in rows.priceable(width, start, dearest=dearest):
            before = summed.get(number)
            together = measures if before is None else [a + b for a, b in zip(before, measures, strict=True)]
            summed[number] = together
            known[number] = dimensions
        for number, told in rows.meters(width, start).items():
            meters.setdefault(number, Counter()).update(told)
    found = [
        (-cost, dimensions, number)
        for number, dimensions in known.items()
        if (cost := cost_of(dimensions, summed[number])) > 0 and (chosen is None or chosen(dimensions))
    ]
    return [
        DaySum(
            day=day,
            dimensions=dimensions,
            tokens=token_sum(day, dimensions, summed[number], meters.get(number, {})),
            cost=-negative,
        )
        for negative, dimensions, number in ordered(found, key=_itself)[:most]
    ]


def _itself(place: tuple[int, Dimensions, int]) -> tuple[int, Dimensions, int]:
    return place


def width_of_day(rows: LedgerRows, day: int) -> int:
    """Return the width of a day's sums: DAY_S if the day is summed up, else HOUR_S."""
    state = state_of(rows)
    return DAY_S if day < state["daily"] else period(day, state["hourly"])[0]


def cost_of(dimensions: Dimensions, measures: Measures) -> int:
    """Reported, else estimated; what a gateway's own cache answered costs nothing."""
    if dimensions.status == "cached":
        return 0
    return {"reported": measures[_REPORTED], "estimated": measures[_ESTIMATED]}.get(dimensions.cost_source, 0)
