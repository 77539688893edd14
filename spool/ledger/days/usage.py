"""Sums of a day to compare with provider bills. They contain every call that the provider answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import add, itemgetter
from typing import Any

import msgspec

from spool.ledger.counting import finest_stored_period, read_state
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.repricing import token_sum
from spool.ledger.sums import (
    COUNTS,
    DAY_S,
    INPUT_UNKNOWN,
    MONEY,
    Dimensions,
    Measures,
    input_size_and_is_output_known,
)
from spool.ledger.token_sums import TokenSum
from spool.turns.threads import sort_in_short_steps

# -- sums that can be priced, and their cost ----------------------------------------------------------------


_REPORTED, _ESTIMATED = (len(COUNTS) + MONEY.index(name) for name in ("reported", "estimated"))

_Named = tuple[int, int, Dimensions]  # negative cost, number and dimensions


class DaySum(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    The calls of one day with the same dimensions. `cost`: reported, or else estimated, in units of
    `spool.money`. `tokens`: sums from which a pricer estimates a cost, if one price holds for the
    whole day.
    """

    day: int  # epoch seconds
    dimensions: Dimensions
    tokens: TokenSum
    cost: int


def priceable_day_sums(
    ledger_rows: LedgerRows, day: int, max_sums: int, chosen: Callable[[Dimensions], bool] | None = None
) -> list[DaySum]:
    """Return at most `max_sums` sums with a cost of a UTC day, the most expensive first."""
    day_sums = [
        day_sum for sums in day_sums_by_dimensions(ledger_rows, (day,), max_sums, chosen) for day_sum in sums
    ]
    return sort_in_short_steps(day_sums, key=lambda day_sum: (-day_sum.cost, day_sum.dimensions))


def day_sums_by_dimensions(
    ledger_rows: LedgerRows,
    days: Iterable[int],
    max_sums: int,
    chosen: Callable[[Dimensions], bool] | None = None,
) -> list[list[DaySum]]:
    """
    Return the `max_sums` most expensive sums of each UTC day: one list per set of dimensions, in the order of the
    days.
    """
    sums_by_number: dict[int, list[DaySum]] = {}
    # None for numbers that `chosen` does not select
    known: dict[int, Dimensions | None] = {}
    for day in days:
        width = stored_sum_width_s(ledger_rows, day)
        # one hour does not show the day's most expensive sums, so read hours completely
        most_expensive_count = max_sums if width == DAY_S and chosen is None else 0
        summed, meters = _token_sums_and_meters_by_dimension_set(
            ledger_rows, day, width, most_expensive_count
        )
        costs_and_numbers = [
            (-measures[-1], number) for number, measures in summed.items() if measures[-1] > 0
        ]
        if chosen is None:
            costs_and_numbers = _most_expensive_costs_and_numbers(costs_and_numbers, max_sums)
        read = ledger_rows.dimensions_by_number(
            [number for _, number in costs_and_numbers if number not in known]
        )
        for number, dimensions in read.items():
            known[number] = dimensions if chosen is None or chosen(dimensions) else None
        named_sums = [
            (negative, number, of)
            for negative, number in costs_and_numbers
            if (of := known[number]) is not None
        ]
        if len(named_sums) > max_sums:
            named_sums = _most_expensive_sums(named_sums, max_sums)
        for negative, number, dimensions in named_sums:
            tokens = token_sum(day, dimensions, summed[number][:-1], meters.get(number, {}), DAY_S)
            day_sum = DaySum(day=day, dimensions=dimensions, tokens=tokens, cost=-negative)
            sums_by_number.setdefault(number, []).append(day_sum)
    return list(sums_by_number.values())


def _token_sums_and_meters_by_dimension_set(
    ledger_rows: LedgerRows, day: int, period_s: int, most_expensive_count: int
) -> tuple[Mapping[int, Measures], Mapping[int, Counter[str]]]:
    summed: dict[int, Measures] = {}
    meters: dict[int, Counter[str]] = {}
    for start in range(day, day + DAY_S, period_s):
        for number, measures in ledger_rows.token_sums_by_dimension_set(
            period_s, start, most_expensive_count=most_expensive_count
        ):
            before = summed.get(number)
            summed[number] = measures if before is None else list(map(add, before, measures))
        for number, quantities in ledger_rows.read_meters(period_s, start).items():
            meters.setdefault(number, Counter()).update(quantities)
    return summed, meters


def _most_expensive_costs_and_numbers(
    costs_and_numbers: list[tuple[int, int]], max_sums: int
) -> list[tuple[int, int]]:
    if len(costs_and_numbers) <= max_sums:
        return costs_and_numbers
    last, _ = sort_in_short_steps(costs_and_numbers, key=itemgetter(0))[max_sums - 1]
    return [entry for entry in costs_and_numbers if entry[0] <= last]


def _most_expensive_sums(named_sums: list[_Named], max_sums: int) -> list[_Named]:
    named_sums = sort_in_short_steps(named_sums, key=itemgetter(0))
    last = named_sums[max_sums - 1][0]
    dearer = [entry for entry in named_sums if entry[0] < last]
    equal = sort_in_short_steps((entry for entry in named_sums if entry[0] == last), key=itemgetter(2, 1))
    return [*dearer, *equal[: max_sums - len(dearer)]]


def stored_sum_width_s(ledger_rows: LedgerRows, day: int) -> int:
    """Return DAY_S if the day has daily sums, else HOUR_S."""
    state = read_state(ledger_rows)
    return DAY_S if day < state["daily"] else finest_stored_period(day, state["hourly"])[0]


def reported_or_estimated_cost(dimensions: Dimensions, measures: Measures) -> int:
    """Return the reported cost, else the estimate. Calls from a gateway's cache cost 0."""
    if dimensions.status == "cached":
        return 0
    return {"reported": measures[_REPORTED], "estimated": measures[_ESTIMATED]}.get(dimensions.cost_source, 0)


# -- sums as a provider bills them, with calls that lack a price or a count
# -----------------------------------


_NOBODY = {"user": None, "device": None, "tags": ""}  # dimensions that a provider does not know


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """
    The calls of one day with the same dimensions, usually without users, devices and tags.

    `sized`: the input and output of each call are known. Only then, and if prices hold all day, can `tokens`
    be priced exactly. `cost`: reported, or else estimated, in units of `spool.money`.
    """

    day: int  # epoch seconds
    dimensions: Dimensions
    tokens: TokenSum
    sized: bool
    cost: int


def day_usage(ledger_rows: LedgerRows, day: int, *, whole: bool = False) -> list[UsageSum]:
    """
    Return the sums of a day without calls from a gateway's cache. `whole`: keep users, devices and tags
    apart.
    """
    nobody: Mapping[str, Any] = {} if whole else _NOBODY
    summed: dict[Dimensions, Measures] = {}
    meters: dict[Dimensions, Counter[str]] = {}
    width = stored_sum_width_s(ledger_rows, day)
    for start in range(day, day + DAY_S, width):
        for dimensions, measures in ledger_rows.read_sums(width, start):
            if dimensions.status == "cached":
                continue
            key = dimensions._replace(**nobody)
            before = summed.get(key)
            summed[key] = (
                list(measures) if before is None else [a + b for a, b in zip(before, measures, strict=True)]
            )
        for dimensions, meter_sums in ledger_rows.metered_sums(width, start):
            key = dimensions._replace(**nobody)
            if dimensions.status != "cached":
                meters.setdefault(key, Counter()).update(meter_sums)
    return [
        UsageSum(
            day=day,
            dimensions=dimensions,
            tokens=msgspec.structs.replace(
                token_sum(day, dimensions, measures, meters.get(dimensions, {}), DAY_S),
                output_tokens=measures[COUNTS.index("output_tokens")],
            ),
            sized=dimensions.kind != "call"
            or (dimensions.size != INPUT_UNKNOWN and input_size_and_is_output_known(dimensions.size)[1]),
            cost=reported_or_estimated_cost(dimensions, measures),
        )
        for dimensions, measures in summed.items()
    ]
