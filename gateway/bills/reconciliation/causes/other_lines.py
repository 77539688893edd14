"""Lines other than tokens, costs that differ from list prices in the ledger, and the rounding of bills."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isqrt

from gateway.bills.reconciliation.causes.missing import ASK_FOR_USAGE
from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import (
    EXACT,
    STRONG,
    WEAK,
    BillComparison,
    CauseClaim,
    ClaimedPortion,
)
from gateway.bills.reconciliation.limits import COARSEST, FINEST, ROUNDING_SHARE
from gateway.bills.reconciliation.matching import NAMED
from gateway.bills.reconciliation.sides import OTHER, OWN, RATE
from gateway.bills.reconciliation.wording import format_dollars, join_names


def claim_failed_calls(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim failed calls with tokens. Calls that the bill leaves out are claimed with minus their counted cost.
    Calls that the bill charges, although the ledger counts them as 0, are claimed with their value.
    `set_aside_unbilled_failed_calls` finds both.
    """
    by_cell = {cell: sums.failed for cell, sums in comparison.split.counted.items() if sums.failed}
    for sign, evidence, advice in (
        (
            -1,
            "the bill has no tokens of failed calls, but Tollhouse counts a cost for them",
            "Nothing is wrong with the bill. Check why these calls failed.",
        ),
        (
            1,
            "the bill has the tokens of failed calls, but Tollhouse counts their cost as 0",
            "Check why these calls failed. Providers bill some of them, such as aborted answers.",
        ),
    ):
        portions: dict[DifferenceEntry, ClaimedPortion] = {
            (OWN, cell, ""): ClaimedPortion(amount) for cell, amount in by_cell.items() if amount * sign > 0
        }
        claim = comparison.remainder.claim_entries(
            "failed_calls",
            portions,
            certainty=EXACT if comparison.are_failed_known else STRONG,
            evidence=evidence,
            advice=advice,
            portions=portions,
        )
        if claim is not None:
            yield claim


def claim_non_token_lines(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim lines of a bill other than tokens, such as web searches, storage, tax and credits. Each kind is one
    claim. If calls report a kind as well, only the difference is left to claim.
    """
    for kind in sorted({meter for _, _, meter in comparison.remainder.entries_of_difference_part(OTHER)}):
        entries = [
            entry for entry in comparison.remainder.entries_of_difference_part(OTHER) if entry[2] == kind
        ]
        fee = comparison.split.reported_fees.get(kind, 0)
        if fee:
            claim = comparison.remainder.claim_entries(
                "meter_differs",
                entries,
                certainty=EXACT,
                evidence=(
                    f"the bill has lines of {join_names([kind])}; calls report {format_dollars(fee)} of "
                    "it at list prices"
                ),
                advice="Check which calls report their `meters`, and the price per unit.",
            )
        else:
            claim = comparison.remainder.claim_entries(
                kind if kind in NAMED else "not_tokens",
                entries,
                certainty=EXACT,
                evidence=f"the bill has lines of {join_names([kind])}, which no call reports",
                advice="Nothing is wrong. Include it in a budget if it should count there.",
            )
        if claim is not None:
            yield claim


def claim_calls_without_cost(comparison: BillComparison) -> Iterator[CauseClaim]:
    """Claim the value of calls without an estimate, for which sources reported only some token counts."""
    remainder = comparison.remainder
    portions: dict[DifferenceEntry, ClaimedPortion] = {
        (OWN, cell, ""): ClaimedPortion(sums.unsized_value)
        for cell, sums in comparison.split.counted.items()
        if sums.unsized_value and (OWN, cell, "") in remainder.amounts
    }
    lacks_bill = any(
        (OWN, cell, "") in portions and extra < 0 for (cell, _), extra in remainder.extra.items()
    )
    claim = remainder.claim_entries(
        "usage_missing",
        portions,
        # the bill may omit these incomplete calls, because it omits other aborted calls
        certainty=WEAK if lacks_bill else EXACT,
        evidence="calls without all of their token counts have no estimate, and their other tokens are on the bill",
        advice=ASK_FOR_USAGE,
        portions=portions,
    )
    if claim is not None:
        yield claim


def claim_own_prices(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim the amounts of calls without a list price, and of calls whose reported cost differs from list
    prices.
    """
    claim = comparison.remainder.claim_entries(
        "own_price",
        comparison.remainder.entries_of_difference_part(OWN),
        certainty=STRONG,
        evidence="some calls have no list price, or a cost from their gateway that differs from list prices",
        advice="After a change of prices, recalculate with `tollhouse ledger reprice`; check `cost_source`.",
    )
    if claim is not None:
        yield claim


def claim_rounding(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Yield a claim that rounding explains the remaining differences of amounts whose tokens agree.

    Each difference is at most half of the last digit per line of the bill. Rounding goes both ways, so the
    sum grows only with the square root of the number of lines. A larger sum has another cause, unless it is a
    tiny share of the bill.
    """
    remainder = comparison.remainder
    split = comparison.split
    differing_cells = {split.levels.money_cell(cell) for cell, _ in remainder.extra}
    entries = []
    lines = 0
    last = 0
    for entry in remainder.entries_of_difference_part(RATE):
        _, cell, meter = entry
        if cell not in differing_cells and comparison.is_within_rounding(entry):
            entries.append(entry)
            lines += max(1, split.lines.get((cell, meter), 0))
            last = max(last, comparison.precision.get(cell.day, 0))
    if abs(sum(remainder.amounts[entry] for entry in entries)) > max(
        last * isqrt(lines), abs(split.billed_total) // ROUNDING_SHARE
    ):
        return
    claim = remainder.claim_entries(
        "rounding",
        entries,
        certainty=STRONG,
        evidence=(
            "the tokens agree, and each amount differs by at most half of the last digit, "
            f"{format_dollars(last)}, per line ({lines:,} lines in all)"
        ),
        advice="Nothing is wrong.",
    )
    if claim is not None:
        yield claim


def claim_amounts_rounded_up(comparison: BillComparison) -> Iterator[CauseClaim]:
    """Claim amounts that are rounded up: each exceeds the value of its tokens by at most the last digit."""
    entries = [
        entry
        for entry in comparison.remainder.entries_of_difference_part(RATE)
        if entry[1:] in comparison.split.worth
    ]
    amounts = [comparison.remainder.amounts[entry] for entry in entries]
    if not any(
        amount * 2 > comparison.largest_rounding_error(entry[1:])
        for amount, entry in zip(amounts, entries, strict=True)
    ):
        return
    if all(
        0 <= amount <= comparison.largest_rounding_error(entry[1:])
        for amount, entry in zip(amounts, entries, strict=True)
    ):
        claim = comparison.remainder.claim_entries(
            "rounding",
            entries,
            certainty=WEAK,
            evidence=f"{len(entries):,} amounts exceed the value of their tokens by at most their last digit",
            advice="Nothing is missing. The provider or the export rounds each amount up.",
        )
        if claim is not None:
            yield claim


def smallest_decimal_unit_of_amounts(amounts: Iterable[int]) -> int:
    """Return the unit of the last decimal that the amounts use, in money units. It is at most a cent."""
    digit: int = COARSEST
    for amount in amounts:
        while digit > FINEST and amount % digit:
            digit //= 10
    return digit
