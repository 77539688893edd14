"""
Tokens that the bill has under another model than the ledger, and output that the source does not report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import permutations

from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import EXACT, WEAK, BillComparison, CauseClaim
from gateway.bills.reconciliation.limits import LEAST_DAYS
from gateway.bills.reconciliation.sides import INPUT_METERS, OUTPUT, VOLUME, ComparisonCell
from gateway.bills.reconciliation.wording import join_names
from gateway.intake.rate_cards.names import model_family

_Extra = dict[str, int]  # billed minus counted tokens by meter
_ASK_FOR_MODEL = "Let the source report the model that answered (`gen_ai.response.model`), not an alias."


def claim_tokens_billed_under_other_model(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim tokens that the ledger has under another model: one model lacks exactly the tokens that another has
    too many. This must hold for each kind of token of a day, key, tier, region and context window. The
    claimed amount is the sum of the differences of both models, in money.

    At least LEAST_DAYS days must agree in this way, or all days of both models.
    """
    remainder = comparison.remainder
    extras: dict[str, dict[ComparisonCell, _Extra]] = defaultdict(lambda: defaultdict(dict))
    for (cell, meter), extra in remainder.extra.items():
        extras[cell.model][cell._replace(model="")][meter] = extra
    for lacking, surplus in permutations(sorted(extras), 2):
        places = [
            place
            for place, theirs in extras[lacking].items()
            if sum(theirs.values()) > 0
            and theirs == {meter: -extra for meter, extra in extras[surplus].get(place, {}).items()}
        ]
        days = {place.day for place in places}
        if len(days) < LEAST_DAYS and not days >= {
            *_distinct_days(extras[lacking]),
            *_distinct_days(extras[surplus]),
        }:
            continue
        entries: list[DifferenceEntry] = [
            (VOLUME, place._replace(model=model), meter)
            for place in places
            for model in (lacking, surplus)
            for meter in extras[model].pop(place)
        ]
        tokens = sum(remainder.extra[cell, meter] for _, cell, meter in entries if cell.model == lacking)
        yield from comparison.claim_entries_with_price_differences(
            "other_model",
            entries,
            EXACT,
            f"the bill has {tokens:,} tokens under {join_names([lacking])} that Tollhouse has under "
            f"{join_names([surplus])}, "
            f"to the token and by kind, on {len(days):,} days"
            + ("; they are snapshots of one model" if model_family(lacking) == model_family(surplus) else ""),
            _ASK_FOR_MODEL,
        )


def _distinct_days(extras: Mapping[ComparisonCell, _Extra]) -> set[int]:
    return {place.day for place in extras}


def claim_missing_output(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim output that the source does not report: in a cell, each kind of input agrees and the bill has more
    output. Nothing is claimed if another such cell of the model has less output, because calls may then only
    be assigned differently.

    The amount is the missing output of these cells at its price.
    """
    remainder, split = comparison.remainder, comparison.split
    entries: list[DifferenceEntry] = [
        (VOLUME, cell, meter)
        for cell, meter in remainder.extra
        if meter == OUTPUT
        and any(remainder.billed_tokens(cell, kind) for kind in INPUT_METERS)
        and not any((cell, kind) in remainder.extra for kind in INPUT_METERS)
    ]
    for model in sorted({cell.model for _, cell, _ in entries}):
        of_model = [entry for entry in entries if entry[1].model == model]
        if any(remainder.extra[cell, OUTPUT] < 0 for _, cell, _ in of_model):
            continue
        if all(cell in split.counted and split.counted[cell].unsized for _, cell, _ in of_model):
            continue  # in every cell, calls lack some token counts, so a difference proves nothing
        cells = [cell for _, cell, _ in of_model]
        lacking = sum(remainder.extra[cell, OUTPUT] for cell in cells)
        billed = sum(remainder.billed_tokens(cell, OUTPUT) for cell in cells)
        reported = sum(split.counted[cell].reasoning for cell in cells if cell in split.counted)
        stated = sum(split.billed[cell].reasoning for cell in cells if cell in split.billed)
        which = "output"
        if lacking == reported:
            which = "reasoning, which the source reports beside the output"
        elif lacking == stated:
            which = "reasoning, which the bill states by itself"
        yield from comparison.claim_entries_with_price_differences(
            "output_missing",
            of_model,
            WEAK if comparison.are_few_days({cell.day for cell in cells}) else EXACT,
            f"all input of {join_names([model])} agrees to the token, but {lacking:,} of {billed:,} "
            "tokens of output are "
            f"not counted: {which}",
            "Let the source count reasoning as output: `completion_tokens` and `output_tokens` include it.",
        )
