"""Which groups a report shows by themselves: the largest. All others are one group, so that sums stay exact. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from gateway.api.report_words import MONEY
from spool.ledger import money
from spool.ledger.queries import CostRow, Group
from spool.turns.ordering import ordered


def largest_groups(
    rows: Sequence[CostRow], places: Collection[tuple[int, Group]], most: int, *, by: str
) -> frozenset[Group] | None:
    """
    The largest groups whose rows, with one for the others in each period, are at most so many; None if all fit.

    `places` has the rows of an answer: which period, and which group.
    """
    if len(places) <= most:
        return None
    counts = Counter(group for _, group in places)
    left = most - len({period for period, _ in places})
    kept = []
    for group in _by_size(rows, by):
        left -= counts[group]
        if left < 0:
            break
        kept.append(group)
    return frozenset(kept)


def _by_size(rows: Sequence[CostRow], by: str) -> Sequence[Group]:
    sizes: Mapping[Group, int] = _sizes(rows, by)
    return ordered(sizes, key=lambda group: (-sizes[group], [value or "" for value in group]))


def _sizes(rows: Sequence[CostRow], by: str) -> dict[Group, int]:
    sizes: dict[Group, int] = defaultdict(int)
    for row in rows:
        value = getattr(row, by)
        sizes[row.group] += money.units(value) if by in MONEY else value
    return sizes
