"""Calls that the ledger lacks, or has without tokens, for keys and models that both sides know."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import EXACT, STRONG, WEAK, BillComparison, CauseClaim
from gateway.bills.reconciliation.limits import (
    GAP,
    LARGE_SHARE,
    LEAST_CALLS,
    LEAST_DAYS,
    LEAST_KINDS,
    ROUGHLY,
    SAME_SIZE,
)
from gateway.bills.reconciliation.sides import INPUT, OUTPUT, VOLUME, ComparisonCell, CountedSums, MeterPlace
from gateway.bills.reconciliation.wording import day_text, join_names

ASK_FOR_USAGE = (
    'Request usage in streams (`stream_options: {"include_usage": true}`). Aborted streams report no usage.'
)

# a gap in the tokens: cell, meter, missing tokens, and billed tokens
_BilledTokenGap = tuple[ComparisonCell, str, int, int]


@dataclass(frozen=True, kw_only=True)
class MissingCallDoubts:
    """
    Reasons to doubt a claim. `beside` lists other causes that may explain the same tokens. `note` describes
    them for the evidence.
    """

    note: str = ""
    beside: tuple[str, ...] = ()

    def __add__(self, other: MissingCallDoubts) -> MissingCallDoubts:
        return MissingCallDoubts(note=self.note + other.note, beside=(*self.beside, *other.beside))


@dataclass(frozen=True, kw_only=True)
class _CellGroup:
    """
    Comparison cells that differ only in their context window. `lacking` has the input and output that the
    ledger lacks. `unsized`: calls without token counts.
    """

    lacking: Mapping[str, int]
    tokens: int
    calls: int
    unsized: int
    billed_calls: int | None

    @property
    def has_missing_calls(self) -> bool:
        """Return whether both input and output are missing, and calls if the bill states their number."""
        is_whole = self.billed_calls is None or self.billed_calls > self.calls
        return is_whole and all(self.lacking.get(kind, 0) > 0 for kind in (INPUT, OUTPUT))


def _cell_groups_if_no_counted_surplus(comparison: BillComparison, model: str) -> list[_CellGroup] | None:
    """
    Return the groups of a model's cells, without cells whose tokens other causes already explain. Return None
    if the ledger has more tokens than the bill anywhere.
    """
    remainder, split = comparison.remainder, comparison.split
    lacking: dict[ComparisonCell, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (cell, meter), extra in remainder.extra.items():
        if extra < 0:
            return None
        if cell.model == model:
            lacking[cell._replace(context=0)][_input_or_output_meter(meter)] += extra
    counted: dict[ComparisonCell, CountedSums] = defaultdict(CountedSums)
    billed: dict[ComparisonCell, int] = defaultdict(int)
    for cell, sums in split.counted.items():
        if cell.model == model and cell not in remainder.explained:
            group = counted[cell._replace(context=0)]
            group.calls, group.unsized = group.calls + sums.calls, group.unsized + sums.unsized
            group.tokens[INPUT] += sum(sums.tokens.values())
    for cell, theirs in split.billed.items():
        if cell.model == model and cell not in remainder.explained:
            counted[cell._replace(context=0)].calls += 0
            if theirs.calls is not None:
                billed[cell._replace(context=0)] += theirs.calls
    return [
        _CellGroup(
            lacking=lacking.get(cell, {}),
            tokens=sums.tokens[INPUT],
            calls=sums.calls,
            unsized=sums.unsized,
            billed_calls=billed.get(cell),
        )
        for cell, sums in counted.items()
    ]


def _is_gap_of_calls_of_mean_size(
    comparison: BillComparison, model: str, groups: Sequence[_CellGroup], call_count: int
) -> bool:
    """
    Return whether `call_count` calls of the counted calls' mean size have the missing input and output.

    The bill must state the number of calls.
    """
    ours, theirs = _unexplained_model_sums(comparison, model)
    if theirs is None or ours.calls <= ours.unsized or not call_count:
        return False
    size: dict[str, int] = defaultdict(int)
    gap: dict[str, int] = defaultdict(int)
    for meter, tokens in ours.tokens.items():
        size[_input_or_output_meter(meter)] += tokens
    for group in groups:
        for kind, tokens in group.lacking.items():
            gap[kind] += tokens
    sized = ours.calls - ours.unsized
    return all(
        abs(gap[kind] * sized - call_count * size[kind]) <= ROUGHLY * call_count * size[kind]
        for kind in (INPUT, OUTPUT)
    )


def claim_missing_usage(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim missing tokens of calls that reached the ledger without token counts.

    If the bill states the number of calls, it must equal the ledger's. The claim is exact if no cell has
    surplus tokens and all cells without such calls agree; at least one must exist. It is strong if such calls
    of the mean size explain the gap. Otherwise the cause is only likely.
    """
    for model in comparison.compared_models():
        groups = _cell_groups_if_no_counted_surplus(comparison, model)
        number = sum(group.unsized for group in groups or ())
        entries = _missing_entries(comparison, model)
        if not entries or not any(
            sums.unsized for cell, sums in comparison.split.counted.items() if cell.model == model
        ):
            continue
        are_all_counted = groups is not None and all(
            group.billed_calls in (None, group.calls) for group in groups
        )
        is_exact = groups is not None and _are_groups_without_cause_fully_counted(
            groups, lambda group: group.unsized > 0
        )
        is_whole = are_all_counted and model not in comparison.remainder.changed
        is_sure = is_whole and (
            is_exact or _is_gap_of_calls_of_mean_size(comparison, model, groups or (), number)
        )
        gap = sum(comparison.remainder.extra[cell, meter] for _, cell, meter in entries)
        yield from comparison.claim_entries_with_price_differences(
            "usage_missing",
            entries,
            WEAK if not is_sure else EXACT if is_exact else STRONG,
            f"{number:,} calls of {join_names([model])} came without tokens, and {gap:,} tokens are missing"
            + (", only where these calls are" if is_exact else ""),
            ASK_FOR_USAGE,
            alternative_causes=() if is_sure else ("unreported_calls",),
        )


def _are_groups_without_cause_fully_counted(
    groups: Sequence[_CellGroup], has_cause: Callable[[_CellGroup], bool]
) -> bool:
    others = [group for group in groups if not has_cause(group)]
    return any(group.tokens for group in others) and not any(any(group.lacking.values()) for group in others)


def claim_unreported_batch_calls(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim missing batch tokens of models without any counted batch call.

    If other tiers of these models lack tokens as well, the batches may be missing with other calls. On fewer than
    LEAST_DAYS days, the cause is only likely.
    """
    reported = {
        (cell.key, cell.model)
        for cell, sums in comparison.split.counted.items()
        if cell.tier == "batch" and sums.calls
    }
    reported |= comparison.remainder.unreported_tiers
    entries = [
        entry
        for entry in comparison.remainder.token_difference_entries()
        if entry[1].tier == "batch"
        and comparison.remainder.extra[entry[1], entry[2]] > 0
        and (entry[1].key, entry[1].model) not in reported
    ]
    models = {cell.model for _, cell, _ in entries}
    if any(cell.tier != "batch" and cell.model in models for cell, _ in comparison.remainder.extra):
        return
    is_sure = len({cell.day for _, cell, _ in entries}) >= LEAST_DAYS
    yield from comparison.claim_entries_with_price_differences(
        "batch_unreported",
        entries,
        STRONG if is_sure else WEAK,
        "the bill has batch tokens of a model, but Tollhouse has no batch call of it",
        "Report batch results when they are fetched, with the tag `processing` = `batch`.",
        alternative_causes=() if is_sure else ("unreported_calls",),
    )


def claim_unreported_calls(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim tokens of calls that the ledger lacks. Typical causes are retries within an SDK, evaluations, and a
    second gateway.

    No cell has surplus tokens, each cell lacks either nothing or both input and output, and at least one cell
    lacks nothing. If the bill states the number of calls, it is larger exactly where tokens are missing, or
    the missing calls have the mean size of the others. Otherwise, the cause is only likely. If the number is
    not larger at all, no call is missing.
    """
    may_be_twice = bool(days_missing_half_of_tokens(comparison))
    for model in comparison.compared_models():
        entries = _missing_entries(comparison, model)
        ours, theirs = _unexplained_model_sums(comparison, model)
        if not entries or not ours.calls:
            continue
        groups = _cell_groups_if_no_counted_surplus(comparison, model)
        sized = ours.calls - ours.errors
        if theirs is not None and theirs <= sized:
            continue  # the bill has no more calls than we have, so no call is missing
        missing = (theirs or 0) - ours.calls
        is_only_cause = not ours.unsized and model not in comparison.remainder.changed and not may_be_twice
        is_exact = (
            groups is not None
            and is_only_cause
            and _are_groups_without_cause_fully_counted(groups, lambda group: group.has_missing_calls)
        )
        is_sure = is_exact or (
            groups is not None
            and is_only_cause
            and missing > 0
            and _is_gap_of_calls_of_mean_size(comparison, model, groups, missing)
        )
        if not is_sure and not _is_gap_proportional(comparison, model, entries):
            continue
        doubts = _doubts_because_of_silent_hours(comparison)
        count = (
            "the bill does not state the number of calls"
            if theirs is None
            else f"{theirs:,} calls were billed"
        )
        yield from comparison.claim_entries_with_price_differences(
            "unreported_calls",
            entries,
            WEAK if not is_sure else EXACT if is_exact else STRONG,
            f"{join_names([model])}: {sized:,} calls{' that did not fail' * bool(ours.errors)} were "
            f"counted, and {count}"
            + ("; only whole calls are missing, and elsewhere all tokens agree" if is_exact else "")
            + doubts.note,
            "Look for retries within an SDK, evaluations, and other programs with the same key.",
            alternative_causes=(
                *doubts.beside,
                *(("usage_missing",) if ours.unsized and not is_sure else ()),
                *(("other_tokenizer",) if _has_constant_daily_ratio(comparison, model) else ()),
                *(("billed_twice",) if _has_repeated_cell(comparison, entries) else ()),
            ),
        )


def _has_repeated_cell(comparison: BillComparison, entries: Sequence[DifferenceEntry]) -> bool:
    """Return whether the bill has all tokens of a cell, of several kinds, exactly twice or more often."""
    extra, counted = comparison.remainder.extra, comparison.split.counted
    for cell in {cell for _, cell, _ in entries if cell in counted}:
        kinds = {meter: tokens for meter, tokens in counted[cell].tokens.items() if tokens}
        ratios = {Fraction(extra.get((cell, meter), 0), tokens) for meter, tokens in kinds.items()}
        if len(kinds) > 1 and len(ratios) == 1 and (ratio := ratios.pop()) >= 1 == ratio.denominator:
            return True
    return False


def _is_gap_proportional(comparison: BillComparison, model: str, entries: Sequence[DifferenceEntry]) -> bool:
    lacking: dict[str, int] = defaultdict(int)
    billed: dict[str, int] = defaultdict(int)
    for _, cell, meter in entries:
        lacking[_input_or_output_meter(meter)] += comparison.remainder.extra[cell, meter]
    for cell, sums in comparison.split.billed.items():
        if cell.model == model and cell not in comparison.remainder.explained:
            for meter, tokens in sums.tokens.items():
                billed[_input_or_output_meter(meter)] += tokens
    shares = [lacking[kind] / billed[kind] for kind in billed if billed[kind]]
    return len(shares) > 1 and min(shares) > 0 and max(shares) <= SAME_SIZE * min(shares)


def _has_constant_daily_ratio(comparison: BillComparison, model: str) -> bool:
    # with another tokenizer, the ratio of billed to counted tokens would be the same every day
    sums: dict[MeterPlace, list[int]] = defaultdict(lambda: [0, 0])
    for cell, meter, extra, tokens in _gaps_in_billed_tokens(comparison):
        if cell.model == model:
            of_day = sums[ComparisonCell(cell.day), _input_or_output_meter(meter)]
            of_day[0] += tokens
            of_day[1] += tokens - extra
    ratios = [theirs / ours for theirs, ours in sums.values() if ours]
    is_everywhere = len(ratios) == len(sums) and len({cell for cell, _ in sums}) >= LEAST_DAYS
    return is_everywhere and max(ratios) - min(ratios) <= GAP * min(ratios)


def _input_or_output_meter(meter: str) -> str:
    """
    Return the meter to compare: all input or all output. The shares of kinds of input vary from call to call
    but even out in total.
    """
    return meter if meter == OUTPUT else INPUT


def _missing_entries(comparison: BillComparison, model: str) -> list[DifferenceEntry]:
    """
    Return the missing tokens of a model, or nothing if about as many are surplus, which missing calls do not
    explain.
    """
    extras = {
        (cell, meter): extra
        for (cell, meter), extra in comparison.remainder.extra.items()
        if cell.model == model
    }
    entries: list[DifferenceEntry] = [(VOLUME, *cell_meter) for cell_meter in extras]
    lacking, surplus = (
        sum(abs(extra) for extra in extras.values() if (extra > 0) is sign) for sign in (True, False)
    )
    return entries if surplus <= LARGE_SHARE * lacking else []


def _missing_and_billed_tokens_by_day(billed_places: Iterable[_BilledTokenGap]) -> dict[int, tuple[int, int]]:
    by_day: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for cell, _, extra, tokens in billed_places:
        by_day[cell.day] = by_day[cell.day][0] + extra, by_day[cell.day][1] + tokens
    return by_day


def _gaps_in_billed_tokens(comparison: BillComparison) -> Iterator[_BilledTokenGap]:
    counted = {(cell, meter) for cell, sums in comparison.split.counted.items() for meter in sums.tokens}
    for cell, meter in counted | comparison.remainder.extra.keys():
        tokens = comparison.remainder.billed_tokens(cell, meter)
        if tokens > 0:
            yield cell, meter, comparison.remainder.extra.get((cell, meter), 0), tokens


def days_missing_half_of_tokens(comparison: BillComparison) -> set[int]:
    """
    Return the days that lack at least half of every kind of token of every key and model.

    If most days lack few tokens, tiers and regions are added up before the comparison.
    """
    return _find_days_missing_half_of_tokens(comparison, list(_gaps_in_billed_tokens(comparison)))


def _find_days_missing_half_of_tokens(
    comparison: BillComparison, places: Sequence[_BilledTokenGap]
) -> set[int]:
    are_few = (
        median(
            [extra / tokens for extra, tokens in _missing_and_billed_tokens_by_day(places).values()] or [0]
        )
        <= ROUGHLY
    )
    kinds: dict[MeterPlace, list[int]] = defaultdict(lambda: [0, 0])
    for cell, meter, extra, tokens in places:
        sums = kinds[cell._replace(tier="", region="") if are_few else cell, meter]
        sums[0] += extra
        sums[1] += tokens
    halves_by_day: dict[int, list[bool]] = defaultdict(list)
    for (cell, _), (extra, tokens) in kinds.items():
        halves_by_day[cell.day].append(extra * 2 >= tokens)
    calls = Counter[int]()
    for cell, counted_sums in comparison.split.counted.items():
        calls[cell.day] += counted_sums.calls
    return {
        day
        for day, halves in halves_by_day.items()
        if all(halves) and (len(halves) >= LEAST_KINDS or (are_few and calls[day] >= LEAST_CALLS))
    }


def _doubts_because_of_silent_hours(comparison: BillComparison) -> MissingCallDoubts:
    """Return doubts about missing calls: hours without a call may also explain the missing tokens."""
    if not comparison.remainder.may_be_silent:
        return MissingCallDoubts()
    days = join_names([day_text(day) for day in comparison.remainder.may_be_silent])
    return MissingCallDoubts(
        note=f"; hours without a call on {days} may also be a gap", beside=("no_telemetry",)
    )


def _unexplained_model_sums(
    comparison: BillComparison, model: str, excluded_days: Collection[int] = ()
) -> tuple[CountedSums, int | None]:
    """
    Return the model's counted sums and billed calls in cells that no claim explains. The number of billed
    calls is None if the bill does not state it.
    """
    ours, theirs = CountedSums(), None
    for cell, sums in comparison.split.counted.items():
        if (
            cell.model == model
            and cell not in comparison.remainder.explained
            and cell.day not in excluded_days
        ):
            ours.calls, ours.errors = ours.calls + sums.calls, ours.errors + sums.errors
            ours.unsized += sums.unsized
            for meter, tokens in sums.tokens.items():
                ours.tokens[meter] += tokens
    for cell, billed in comparison.split.billed.items():
        is_open = cell not in comparison.remainder.explained and cell.day not in excluded_days
        if cell.model == model and billed.calls is not None and is_open:
            theirs = (theirs or 0) + billed.calls
    return ours, theirs
