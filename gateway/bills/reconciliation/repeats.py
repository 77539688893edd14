"""
Detection of repeated tokens: rows that a report repeats, and calls that two sources report. Pure.

It runs before anything is valued, so that the search for moved tokens uses each token once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.bills.reconciliation.limits import LEAST_DAYS, MOST_AGAIN
from gateway.bills.reconciliation.sides import OUTPUT, ComparisonCell, CountedSums

_NOTHING = [0, 0]  # no tokens, neither input nor output

Owner = tuple[str, str]  # owner of tokens: key and model
BilledByCell = Mapping[ComparisonCell, Mapping[str, int]]  # billed tokens by cell and meter (METERS)
_Sums = dict[Owner, dict[int, list[int]]]  # input and output tokens by owner and day


@dataclass(frozen=True, kw_only=True)
class RepeatedTokens:
    """
    Tokens that the bill or the ledger has more than once. `billed` maps days to how many times the bill has
    their tokens. `counted` maps keys and models that the ledger has twice to the two sources.
    """

    billed: Mapping[int, int] = field(default_factory=dict)
    counted: Mapping[Owner, tuple[str, ...]] = field(default_factory=dict)

    def billed_times(self, cell: ComparisonCell) -> Fraction:
        """Return how often the bill repeats the cell's tokens, halved if the ledger has them twice."""
        return Fraction(self.billed.get(cell.day, 1), 2 if (cell.key, cell.model) in self.counted else 1)


def find_repeated_tokens(
    billed: BilledByCell, counted_sums: Mapping[ComparisonCell, CountedSums]
) -> RepeatedTokens:
    """
    Find repeated tokens. A day is repeated if the bill has an exact multiple of the counted input and output
    tokens. A key and model is repeated if the ledger has exactly twice the billed tokens from two sources.
    """
    theirs = _sums_by_owner(billed)
    ours = _sums_by_owner({cell: sums.tokens for cell, sums in counted_sums.items()})
    sources = _owners_with_two_sources(counted_sums)
    twice = {
        owner: names
        for owner, names in sources.items()
        if _is_counted_twice(ours[owner], theirs.get(owner, {}))
    }
    once = {
        owner: {day: [count // 2 for count in sums] if owner in twice else sums for day, sums in days.items()}
        for owner, days in ours.items()
    }
    known = _owners_on_both_sides(theirs, ours)
    days = {day for days in theirs.values() for day in days}
    repeated_days = {
        day: times
        for day in days
        if (
            times := _times_billed_if_common_to_owners(
                {owner: theirs.get(owner, {}).get(day, [0, 0]) for owner in known},
                {owner: once.get(owner, {}).get(day, [0, 0]) for owner in known},
            )
        )
        > 1
    }
    if len(repeated_days) * 2 > len(days) and not _are_rows_repeated(billed, counted_sums, repeated_days):
        # If most days have a multiple, but not in every tier, the additional tokens are calls and
        # not repeated rows.
        repeated_days = {}
    return RepeatedTokens(billed=repeated_days, counted=twice)


def _sums_by_owner(tokens: BilledByCell) -> _Sums:
    sums_by_owner: _Sums = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for cell, by_meter in tokens.items():
        for meter, count in by_meter.items():
            if count:
                sums_by_owner[cell.key, cell.model][cell.day][meter == OUTPUT] += count
    return sums_by_owner


def _owners_on_both_sides(billed_sums: _Sums, counted_sums: _Sums) -> set[Owner]:
    keys = {key for key, _ in billed_sums} & {key for key, _ in counted_sums}
    models = {model for _, model in billed_sums} & {model for _, model in counted_sums}
    owners = billed_sums.keys() | counted_sums.keys()
    return {(key, model) for key, model in owners if key in keys and model in models}


def _owners_with_two_sources(counted: Mapping[ComparisonCell, CountedSums]) -> dict[Owner, tuple[str, ...]]:
    sums: dict[Owner, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for cell, counted_sums in counted.items():
        for source, tokens in counted_sums.by_source.items():
            sums[cell.key, cell.model][source] += tokens
    return {
        owner: tuple(sorted(by_source))
        for owner, by_source in sums.items()
        if len(by_source) == 2 and len(set(by_source.values())) == 1
    }


def _is_counted_twice(
    counted_by_day: Mapping[int, list[int]], billed_by_day: Mapping[int, list[int]]
) -> bool:
    days = counted_by_day.keys() | billed_by_day.keys()
    times = [
        _billed_ratio(billed_by_day.get(day, _NOTHING), counted_by_day.get(day, _NOTHING)) for day in days
    ]
    half = times.count(Fraction(1, 2))
    is_again = all(ratio and ratio * 2 == int(ratio * 2) <= MOST_AGAIN + 1 for ratio in times)
    return is_again and half >= LEAST_DAYS and half * 2 > len(times)


def _billed_ratio(billed: list[int], counted: list[int]) -> Fraction:
    ratios = {
        Fraction(billed_count, counted_count)
        for billed_count, counted_count in zip(billed, counted, strict=True)
        if counted_count
    }
    is_one = len(ratios) == 1 and not any(
        billed_count for billed_count, counted_count in zip(billed, counted, strict=True) if not counted_count
    )
    return ratios.pop() if is_one else Fraction(0)


def _times_billed_if_common_to_owners(
    billed: Mapping[Owner, list[int]], counted: Mapping[Owner, list[int]]
) -> int:
    ratios = {
        owner: _billed_ratio(billed[owner], counted[owner])
        for owner in counted
        if any(billed[owner]) or any(counted[owner])
    }
    repeated_owners = {owner for owner, ratio in ratios.items() if ratio != 1}
    times = {ratios[owner] for owner in repeated_owners}
    tokens = {owner: sum(counted[owner]) for owner in ratios}
    if len(times) != 1 or sum(tokens[owner] for owner in repeated_owners) * 2 < sum(tokens.values()):
        return 0
    common_ratio = times.pop()
    return (
        int(common_ratio) if common_ratio == int(common_ratio) and 1 < common_ratio <= MOST_AGAIN + 1 else 0
    )


def _are_rows_repeated(
    billed: BilledByCell, counted_sums: Mapping[ComparisonCell, CountedSums], days: Mapping[int, int]
) -> bool:
    return all(
        count == days[cell.day] * (counted_sums[cell].tokens.get(meter, 0) if cell in counted_sums else 0)
        for cell, by_meter in billed.items()
        if cell.day in days
        for meter, count in by_meter.items()
    )
