"""Capacity that a contract states, next to the lines of the bill that pay for it."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.bills.reconciliation.cells import Entry
from gateway.bills.reconciliation.claims import EXACT, Case, Claim
from gateway.bills.reconciliation.limits import COARSEST
from gateway.bills.reconciliation.sides import OTHER, VOLUME
from gateway.bills.reconciliation.wording import dollars, named

_LINE = "throughput"


def capacity(case: Case) -> Iterator[Claim]:
    """
    Claim the lines F of capacity that contracts state: F. The tokens of this capacity cost nothing, so those that the
    bill leaves out are claimed without an amount.

    The evidence names the amount C of the contracts, for the compared days, if F differs from C by more than a cent.
    """
    terms = [each for each in case.commitments if not each.by_day.keys().isdisjoint(case.days)]
    if not terms:
        return
    days = {day for each in terms for day in each.by_day if day in case.days}
    lines = [
        entry
        for entry in case.remainder.of(OTHER)
        if entry[2] == _LINE
        and entry[1].day in days
        and (not entry[1].model or any(each.is_of(entry[1].model) for each in terms))
    ]
    if not lines:
        return
    fee = sum(case.remainder.amounts[entry] for entry in lines)
    stated = sum(amount for each in terms for day, amount in each.by_day.items() if day in case.days)
    least: int = COARSEST
    is_same = abs(fee - stated) <= least
    contracts = f"the contract {named(sorted({each.term.contract for each in terms}))}"
    claim = case.remainder.take(
        "commitment",
        [*lines, *_left_out(case)],
        sure=EXACT,
        evidence=(
            f"{dollars(fee)} were billed for capacity on {len(days):,} days, "
            + (f"as {contracts} states" if is_same else f"but {contracts} states {dollars(stated)}")
        ),
        advice=(
            "Nothing is missing. The capacity pays for the tokens that it serves."
            if is_same
            else "Correct the contract with `tollhouse contracts edit`, or ask the provider about the difference."
        ),
    )
    if claim is not None:
        yield claim


def _left_out(case: Case) -> list[Entry]:
    """Return the tokens of capacity that the ledger counts at no cost, and that the bill does not have."""
    return [
        (VOLUME, cell, meter)
        for (cell, meter), extra in case.remainder.extra.items()
        if extra < 0
        and (VOLUME, cell, meter) not in case.remainder.amounts
        and any(
            cell.day in each.by_day and each.is_of(cell.model) and each.term.is_of_tier(cell.tier)
            for each in case.commitments
        )
    ]
