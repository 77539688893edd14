"""What is not a token, what the ledger itself adds, and the rounding of bills."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isqrt

from gateway.bills.reconciliation.claims import EXACT, STRONG, WEAK, Case, Claim
from gateway.bills.reconciliation.matching import NAMED
from gateway.bills.reconciliation.sides import OTHER, OWN, RATE
from gateway.bills.reconciliation.wording import dollars, named
from spool.ledger.money import UNIT

LEAST_SHARE = 10_000  # one in so many dollars of a bill may be rounding
COARSEST, FINEST = (
    UNIT // 100,
    UNIT // 10**9,
)  # the last digit of amounts: a cent, and the noise of binary numbers


def not_tokens(case: Case) -> Iterator[Claim]:
    """
    Lines of a bill beside tokens: web searches, storage, tax, credits. Each kind is one claim; of a kind that
    calls tell as well, what is left is the difference of the two.
    """
    for kind in sorted({meter for _, _, meter in case.left.of(OTHER)}):
        entries = [entry for entry in case.left.of(OTHER) if entry[2] == kind]
        fee = case.split.told_fees.get(kind, 0)
        if fee:
            claim = case.left.take(
                "meter_differs",
                entries,
                sure=EXACT,
                evidence=f"the bill has lines of {named([kind])}, of which calls tell {dollars(fee)} at list prices",
                advice="Look at which calls tell their `meters`, and at the price of the unit.",
            )
        else:
            claim = case.left.take(
                kind if kind in NAMED else "not_tokens",
                entries,
                sure=EXACT,
                evidence=f"the bill has lines of {named([kind])}, which no record of a call tells",
                advice="Nothing is wrong: add it where a budget has to hold it.",
            )
        if claim is not None:
            yield claim


def own_price(case: Case) -> Iterator[Claim]:
    """The ledger's cost is not its tokens at the price book: calls without a price, or costs that sources report."""
    claim = case.left.take(
        "own_price",
        case.left.of(OWN),
        sure=STRONG,
        evidence="some calls have no list price, and some carry a cost from the gateway that differs from list "
        "prices",
        advice="Price again with `tollhouse ledger reprice` after a change of prices, and look at `cost_source`.",
    )
    if claim is not None:
        yield claim


def rounding(case: Case) -> Iterator[Claim]:
    """
    Rates that are as small as the last digit of the amounts that were billed, where no tokens are apart.

    Each is at most half of that digit for each of its lines. Rounding goes up and down, so that all of it grows
    with the root of the lines alone: what is more has another cause, but for a small share of a large bill.
    """
    left = case.left
    split = case.split
    apart = {split.levels.coarse(cell) for cell, _ in left.extra}
    entries = []
    lines = 0
    last = 0
    for entry in left.of(RATE):
        _, cell, meter = entry
        if cell not in apart and case.is_rounded(entry):
            entries.append(entry)
            lines += max(1, split.lines.get((cell, meter), 0))
            last = max(last, case.precision.get(cell.day, 0))
    if abs(sum(left.amounts[entry] for entry in entries)) > max(
        last * isqrt(lines), abs(split.billed_total) // LEAST_SHARE
    ):
        return
    claim = left.take(
        "rounding",
        entries,
        sure=WEAK,
        evidence=f"the tokens agree, and no amount is further apart than half of the last digit, {dollars(last)}, of "
        f"each of its lines: {lines:,} in all",
        advice="Nothing is wrong.",
    )
    if claim is not None:
        yield claim


def last_digit(amounts: Iterable[int]) -> int:
    """The last digit in which all these amounts are written, in units: of a cent at most."""
    digit: int = COARSEST
    for amount in amounts:
        while digit > FINEST and amount % digit:
            digit //= 10
    return digit
