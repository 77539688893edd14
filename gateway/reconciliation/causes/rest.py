"""What is no token, what the ledger itself adds, and the rounding of bills."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.reconciliation.cells import OTHER, OWN
from gateway.reconciliation.claims import EXACT, STRONG, WEAK, Case, Claim
from gateway.reconciliation.wording import named
from spool.ledger.money import UNIT

_NAMED = frozenset({"tax", "credit", "discount", "rounding"})
CENT = UNIT // 100
LEAST_SHARE = 2000  # one in so many dollars is rounding


def not_tokens(case: Case) -> Iterator[Claim]:
    """Lines of a bill beside tokens: web searches, storage, tax, credits. Each kind is one claim."""
    for kind in sorted({meter for _, _, meter in case.left.of(OTHER)}):
        claim = case.left.take(
            kind if kind in _NAMED else "not_tokens",
            [entry for entry in case.left.of(OTHER) if entry[2] == kind],
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
        evidence="the ledger's own cost is not its tokens at the price book: calls without a price count as 0, and "
        "costs that sources report count as they are",
        advice="Price again with `tollhouse ledger reprice` after a change of prices, and look at `cost_source`.",
    )
    if claim is not None:
        yield claim


def rounding(case: Case) -> Iterator[Claim]:
    """What is left is as small as rounding every row of the statement would be."""
    amounts = case.left.amounts
    size = sum(map(abs, amounts.values()))
    if not size or size > max(CENT * case.rows // 2, abs(case.split.billed_total) // LEAST_SHARE):
        return
    claim = case.left.take(
        "rounding",
        [*amounts],
        sure=WEAK,
        evidence=f"all that is left is less than a cent for each of {case.rows:,} rows of the statement",
        advice="Nothing is wrong.",
    )
    if claim is not None:
        yield claim
