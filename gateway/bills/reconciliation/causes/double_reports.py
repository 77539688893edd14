"""Calls counted twice, because two sources report them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from gateway.bills.reconciliation.claims import (
    EXACT,
    STRONG,
    WEAK,
    BillComparison,
    CauseClaim,
    ClaimedPortion,
)
from gateway.bills.reconciliation.repeats import Owner
from gateway.bills.reconciliation.sides import CACHE_READ, INPUT, INPUT_METERS, RATE, VOLUME, ComparisonCell
from gateway.bills.reconciliation.wording import join_names


def claim_keys_counted_twice(comparison: BillComparison) -> Iterator[CauseClaim]:
    """Claim keys and models of which exactly twice as many tokens were counted as billed on every day."""
    split = comparison.split
    remainder = comparison.remainder
    twice = split.repeats.counted
    portions = {
        (VOLUME, cell, meter): ClaimedPortion(-value // 2, -split.counted[cell].tokens[meter] // 2)
        for (cell, meter), value in split.values.items()
        if (cell.key, cell.model) in twice and cell not in remainder.explained and value
    }
    names = sorted({source for sources in twice.values() for source in sources})
    claim = remainder.claim_entries(
        "double_report",
        portions,
        certainty=STRONG,
        evidence=(
            "exactly twice as much was counted as billed, on each day, half of it by "
            f"{' and half by '.join(names)}"
        ),
        advice=f"Count only one of them: set `count = false` in [sources.{names[-1] if names else ''}].",
        portions=portions,
    )
    if claim is not None:
        yield claim


def claim_cached_input_counted_twice(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim cached tokens that were reported again as input. In each cell of a key and model, our input minus the bill's
    input is the cached input, on which both sides agree.
    """
    split, remainder = comparison.split, comparison.remainder
    cells: dict[Owner, set[ComparisonCell]] = defaultdict(set)
    for cell in (*split.counted, *(cell for cell, _ in remainder.extra)):
        if cell.day in split.metered and cell not in remainder.explained:
            cells[cell.key, cell.model].add(cell)

    def is_counted_again(cell: ComparisonCell) -> bool:
        cached = split.counted[cell].tokens.get(CACHE_READ, 0) if cell in split.counted else 0
        again = {INPUT: -cached} if cached else {}
        return again == {
            meter: tokens for meter in INPUT_METERS if (tokens := remainder.extra.get((cell, meter), 0))
        }

    found = [
        cell
        for theirs in cells.values()
        if all(is_counted_again(cell) for cell in theirs)
        for cell in theirs
        if remainder.extra.get((cell, INPUT))
    ]
    if not comparison.are_few_days({cell.day for cell in found}):
        # if large inputs have another price, the calls may only seem large, so the tokens have no certain value
        doubtful = {
            cell
            for (cell, meter), premium in split.premium.items()
            if premium and not comparison.is_within_rounding((RATE, cell, meter))
        }
        for certainty in (EXACT, WEAK):
            claim = remainder.claim_entries(
                "cached_twice",
                [
                    (VOLUME, cell, INPUT)
                    for cell in sorted(found)
                    if (split.levels.money_cell(cell) in doubtful) == (certainty == WEAK)
                ],
                certainty=certainty,
                evidence=(
                    f"{join_names(sorted({cell.model for cell in found}))}: our input minus the bill's input is the "
                    "cached input, to the token, on each day"
                ),
                advice="Check with `tollhouse explain --why` whether the source's input contains the cached input.",
            )
            if claim is not None:
                yield claim


def claim_double_reports(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim calls that a source reports in addition to another source. In each cell, the counted tokens exceed
    the billed ones by exactly this source's tokens. If that holds only for most of the excess, the cause is
    only likely.
    """
    yield from _claim_sources_reporting_calls_again(comparison)
    remainder = comparison.remainder
    excess = _counted_minus_billed_by_cell(comparison)
    models = {cell.model for cell, extra in excess.items() if extra > 0}
    by_source: dict[str, dict[ComparisonCell, int]] = defaultdict(dict)
    for cell, sums in comparison.split.counted.items():
        for source, tokens in sums.by_source.items() if cell.model in models else ():
            if tokens and cell not in remainder.explained:
                by_source[source][cell] = tokens
    whole = sum(extra for cell, extra in excess.items() if cell.model in models)
    if len(by_source) < 2 or whole <= 0:
        yield from _claim_source_counted_twice(comparison, models)
        return

    def distance_from_excess(source: str) -> int:
        cells = {*by_source[source], *(cell for cell in excess if cell.model in models)}
        return sum(abs(excess.get(cell, 0) - by_source[source].get(cell, 0)) for cell in cells)

    source = min(sorted(by_source), key=distance_from_excess)
    if distance_from_excess(source) * 2 > whole:
        return
    beside = _sources_in_cells(comparison, by_source[source])
    yield from comparison.claim_entries_with_price_differences(
        "double_report",
        [entry for entry in remainder.token_difference_entries() if entry[1].model in models],
        WEAK if distance_from_excess(source) else EXACT,
        f"{whole:,} tokens more were counted than billed, which is "
        f"{'about ' if distance_from_excess(source) else ''}as much as "
        f"{source} reports in addition to {join_names(sorted(beside - {source} or by_source.keys() - {source}))}",
        f"Count only one of them: set `count = false` in [sources.{source}].",
    )


def _claim_sources_reporting_calls_again(comparison: BillComparison) -> Iterator[CauseClaim]:
    remainder, counted = comparison.remainder, comparison.split.counted
    excess = _counted_minus_billed_by_cell(comparison)
    cells: dict[Owner, set[ComparisonCell]] = defaultdict(set)
    for cell in (*counted, *excess):
        if cell not in remainder.explained:
            cells[cell.key, cell.model].add(cell)
    found: dict[str, set[Owner]] = defaultdict(set)
    for owner in {(cell.key, cell.model) for cell, extra in excess.items() if extra > 0}:
        sources = {
            name
            for cell in cells[owner]
            if cell in counted
            for name, tokens in counted[cell].by_source.items()
            if tokens
        }
        fitting = [
            name
            for name in sources
            if all(
                excess.get(cell, 0) == (counted[cell].by_source.get(name, 0) if cell in counted else 0)
                for cell in cells[owner]
            )
        ]
        if len(sources) > 1 and len(fitting) == 1:
            found[fitting[0]].add(owner)
    for source, owners in sorted(found.items()):
        whole = sum(excess.get(cell, 0) for owner in owners for cell in cells[owner])
        beside = _sources_in_cells(
            comparison, [cell for owner in owners for cell in cells[owner] if cell in counted]
        )
        yield from comparison.claim_entries_with_price_differences(
            "double_report",
            [
                entry
                for entry in remainder.token_difference_entries()
                if (entry[1].key, entry[1].model) in owners
            ],
            EXACT,
            f"{whole:,} tokens more were counted than billed, which is as much as {source} reports in addition to "
            f"{join_names(sorted(beside - {source}))}",
            f"Count only one of them: set `count = false` in [sources.{source}].",
        )


def _counted_minus_billed_by_cell(comparison: BillComparison) -> dict[ComparisonCell, int]:
    excess: dict[ComparisonCell, int] = defaultdict(int)
    for (cell, _), extra in comparison.remainder.extra.items():
        excess[cell] -= extra
    return excess


def _sources_in_cells(comparison: BillComparison, cells: Iterable[ComparisonCell]) -> set[str]:
    return {
        name for cell in cells for name, tokens in comparison.split.counted[cell].by_source.items() if tokens
    }


def _claim_source_counted_twice(comparison: BillComparison, models: Collection[str]) -> Iterator[CauseClaim]:
    remainder, counted = comparison.remainder, comparison.split.counted
    tokens = {
        (cell, meter): count
        for cell, sums in counted.items()
        if cell.model in models and cell not in remainder.explained
        for meter, count in sums.tokens.items()
    }
    if all(count == -2 * remainder.extra.get(place, 0) for place, count in tokens.items()):
        yield from comparison.claim_entries_with_price_differences(
            "double_report",
            [entry for entry in remainder.token_difference_entries() if entry[1].model in models],
            EXACT,
            "exactly twice as much was counted as billed, in each place and for each kind of token",
            "Check with `tollhouse explain --why` why the calls of the source are counted twice.",
        )
