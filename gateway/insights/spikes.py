"""
Days that cost far more than days like them: the same weekday in the weeks before, or the days before.

Medians, so that neither the rhythm of the week nor an earlier spike moves what is expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import NamedTuple

TOLD = 7  # days in which a spike is told
LOOK_BACK = 2 * TOLD  # to find where it began
TOGETHER = 3  # days from one spike to the next that belongs to it: a weekend may lie between
WEEKS = 4
ENOUGH_WEEKS = 3
ENOUGH_DAYS = 7
TIMES = 2  # what is expected
SPREADS = Decimal("6") * Decimal("1.4826")  # deviations, from the median deviation
LEAST = Decimal(1)  # dollars over what is expected

Days = Mapping[int, Decimal]  # day number -> spend


class Spike(NamedTuple):
    """A day that stands out."""

    number: int
    spent: Decimal
    expected: Decimal


def spikes_of(days: Days, first: int, today: int, least: Decimal) -> Iterator[Spike]:
    """The newest days that stand out. Today so far is held against whole days."""
    for number in range(today - LOOK_BACK, today + 1):
        before = _before(days, number, first)
        if not before or not (expected := median(before)):
            continue
        spread = median(abs(each - expected) for each in before)
        excess = days.get(number, Decimal(0)) - expected
        if excess >= max(least, (TIMES - 1) * expected, SPREADS * spread):
            yield Spike(number, expected + excess, expected)


def _before(days: Days, number: int, first: int) -> list[Decimal]:
    """Returns the days to compare a day with; none if there is too little history."""
    same_weekdays = (number - 7 * week for week in range(1, WEEKS + 1))
    weeks = [days.get(each, Decimal(0)) for each in same_weekdays if each >= first]
    if len(weeks) >= ENOUGH_WEEKS:
        return weeks
    every = [days.get(each, Decimal(0)) for each in range(max(first, number - 7 * WEEKS), number)]
    return every if len(every) >= ENOUGH_DAYS else []


def streaks(spikes: Sequence[Spike]) -> list[list[Spike]]:
    """Spikes that follow each other are one: what lasts for a week is told once."""
    streaks: list[list[Spike]] = []
    for spike in spikes:
        if streaks and spike.number - streaks[-1][-1].number <= TOGETHER:
            streaks[-1].append(spike)
        else:
            streaks.append([spike])
    return streaks
