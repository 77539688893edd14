"""The tests, in the order in which they claim; each takes its share out of what the next ones see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gateway.bills.reconciliation.causes import (
    days,
    doubles,
    kinds,
    missing,
    one_side,
    rates,
    regions,
    rest,
    silence,
)
from gateway.bills.reconciliation.claims import KINDS, OF_KINDS, OF_PRICES, OTHERS, PRICES, Case, Claim
from gateway.bills.reconciliation.wording import spaced
from spool.ledger.money import UNIT

ANY_PRICE = "another_price"  # where nothing tells which
Test = Callable[[Case], Iterator[Claim]]

TESTS: Sequence[Test] = (
    one_side.unreported_traffic,
    one_side.other_account,
    silence.no_telemetry,
    silence.no_bill,
    doubles.counted_twice,
    silence.billed_twice,
    kinds.tier_unknown,
    kinds.cache_split,
    days.time_edge,
    silence.silent_hours,
    doubles.double_report,
    missing.usage_missing,
    missing.batch_unreported,
    missing.unreported_calls,
    missing.missing_share,
    rates.reported_cost,
    regions.regional_price,
    rates.rates,
    rest.not_tokens,
    rest.own_price,
    rest.rounding,
)


CENT = UNIT // 100
_NO_CAUSE = frozenset({"rounding", "own_price"})


def claims(case: Case) -> list[Claim]:
    """
    Return the claims of every test, the largest first, each with the causes that cannot be distinguished from it.
    """
    found = [claim for test in TESTS for claim in test(case)]
    found = [_named(claim, found, case) for claim in found]
    return sorted(found, key=lambda each: (-each.moved, -abs(each.tokens), each.cause))


def _named(claim: Claim, found: Sequence[Claim], case: Case) -> Claim:
    """The claim with the names of what holds in its place as well, in its evidence, too."""
    names: list[str] = []
    for each in claim.beside:
        if each in (OTHERS, KINDS):
            there = [other.cause for other in found if other.moved >= CENT and _overlap(claim, other)]
            names += [cause for cause in there if each == OTHERS or cause in OF_KINDS]
        elif each == PRICES:
            names += _prices(claim, found, case)
        else:
            names.append(each)
    beside = tuple(sorted(set(names) - {claim.cause} - _NO_CAUSE))
    if not beside:
        return replace(claim, beside=())
    words = " and ".join(spaced(name) for name in (claim.cause, *beside))
    return replace(claim, beside=beside, evidence=f"{claim.evidence}; {words} cannot be told apart here")


def _prices(claim: Claim, found: Sequence[Claim], case: Case) -> list[str]:
    """
    Name the causes among prices of the same models, or, where calls have their own price, of any model; if there
    are none, what else is claimed of such calls, or any price if no call has one.

    None of models without a counted call: all that was billed for them is of calls that nobody told,
    whatever the price.
    """
    models = {cell.model for cell in claim.by_cell} & {cell.model for cell in case.split.counted}
    if not models:
        return []
    priced = [other for other in found if other.cause in OF_PRICES and other.moved >= CENT]
    names = [other.cause for other in priced if any(cell.model in models for cell in other.by_cell)]
    if names or not models & case.split.varying:
        return names or [ANY_PRICE]
    # What tokens are missing hides a price that other models show.
    of_calls = [other.cause for other in found if other.moved >= CENT and _overlap(claim, other)]
    return [*of_calls, *(other.cause for other in priced)]


def _overlap(claim: Claim, other: Claim) -> bool:
    """True if both are about tokens of the same days and models."""
    places = {(cell.day, cell.model) for cell in claim.by_cell}
    return other.is_of_tokens and any((cell.day, cell.model) in places for cell in other.by_cell)
