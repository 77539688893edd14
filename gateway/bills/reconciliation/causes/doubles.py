"""Calls that were counted twice, because two sources report them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gateway.bills.reconciliation.claims import EXCHANGED, STRONG, WEAK, Case, Claim, Portion
from gateway.bills.reconciliation.sides import VOLUME, are_alike
from gateway.bills.reconciliation.wording import named, percent

NEAR = 0.05


def counted_twice(case: Case) -> Iterator[Claim]:
    """
    Claim keys and models for which two sources report the same calls, so that exactly twice as much was
    counted as billed on every day.
    """
    split = case.split
    remainder = case.remainder
    twice = split.repeats.counted
    portions = {
        (VOLUME, cell, meter): Portion(-value // 2, -split.counted[cell].tokens[meter] // 2)
        for (cell, meter), value in split.values.items()
        if (cell.key, cell.model) in twice and cell not in remainder.explained and value
    }
    names = sorted({source for sources in twice.values() for source in sources})
    claim = remainder.take(
        "double_report",
        portions,
        sure=STRONG,
        evidence=(
            "exactly twice as much was counted as billed, on each day, half of it by "
            f"{' and half by '.join(names)}"
        ),
        advice=f"Count only one of them: set `count = false` in [sources.{names[-1] if names else ''}].",
        portions=portions,
    )
    if claim is not None:
        yield claim


def double_report(case: Case) -> Iterator[Claim]:
    """
    Claim counted tokens in excess of the bill, if they match one source's tokens or if twice the billed
    tokens were counted.
    """
    remainder = case.remainder
    counted = case.split.counted
    excess_entries = [entry for entry in remainder.volume() if remainder.extra[entry[1], entry[2]] < 0]
    gap, by_source = defaultdict[int, int](int), defaultdict[str, dict[int, int]](lambda: defaultdict(int))
    models = {cell.model for _, cell, _ in excess_entries}
    lacking = sum(extra for (cell, _), extra in remainder.extra.items() if extra > 0 and cell.model in models)
    total = billed = 0
    for _, cell, meter in excess_entries:
        gap[cell.day] -= remainder.extra[cell, meter]
    for cell, sums in counted.items():
        if cell.model in models:
            total += sum(sums.tokens.values())
            for source, tokens in sums.by_source.items():
                by_source[source][cell.day] += tokens
    if sum(gap.values()) <= NEAR * total or lacking > EXCHANGED * sum(gap.values()):
        return
    billed = total - sum(gap.values())
    case.remainder.counted_again |= models
    short_entries = [
        entry for entry in remainder.volume() if entry[1].model in models and entry not in excess_entries
    ]
    # The claim also includes the places with too few tokens, because their sum is less than EXCHANGED
    # of the excess.
    excess_entries += short_entries
    twice = [source for source, days in sorted(by_source.items()) if are_alike(days, gap, NEAR)]
    if twice and len(by_source) > 1:
        other_sources = named([source for source in sorted(by_source) if source != twice[0]])
        yield from case.taken(
            "double_report",
            excess_entries,
            STRONG,
            f"{percent(total, billed)} of the billed tokens were counted; on each day, the excess is "
            f"as much as {twice[0]} reports in addition to {other_sources}",
            f"Count only one of them: set `count = false` in [sources.{twice[0]}].",
        )
    elif billed > 0 and abs(total / billed - 2) <= NEAR:
        yield from case.taken(
            "double_report",
            excess_entries,
            WEAK,
            f"{total / billed:.2f} times the billed tokens were counted, by {named(sorted(by_source))}",
            "Check which two of them report the same calls (`tollhouse report --by source`), and set "
            "`count = false` for one.",
        )
