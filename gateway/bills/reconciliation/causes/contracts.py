"""Amounts that contracts state, compared with the bill's lines for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from gateway.bills.contracts.declared import (
    ALLOWANCE,
    COMMITMENT,
    CREDIT,
    FEE,
    MINIMUM,
    contract_charge_of_line,
)
from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import EXACT, OF_PRICES, BillComparison, CauseClaim, build_claim
from gateway.bills.reconciliation.limits import COARSEST, SAME
from gateway.bills.reconciliation.sides import OTHER, RATE, VOLUME, ComparisonCell, ContractSum
from gateway.bills.reconciliation.wording import format_dollars, join_names

_WORDS = {
    COMMITMENT: "capacity",
    MINIMUM: "minimum",
    CREDIT: "credits",
    FEE: "fees",
    ALLOWANCE: "free tokens",
}
_CAUSES = {ALLOWANCE: "free_tokens"}  # causes of charges; for other charges, the cause has the charge's name
_GIVEN = frozenset({"credit", "discount"})  # kinds of bill lines that reduce the amount
_ADVICE = "Correct the contract with `tollhouse contracts edit`, or ask the provider about the difference."


def claim_committed_capacity_lines(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim the bill's lines for capacity that contracts state. The bill charges no tokens of this capacity, so
    tokens that it leaves out are claimed without an amount.

    The evidence names the contracts' amount for the compared days, minimums included, if it differs from the
    lines by more than a cent.
    """
    terms = _sums_stated_by_contracts(comparison, COMMITMENT)
    is_minimum = any(each.charge == MINIMUM for each in terms)
    days = {day for each in comparison.commitments for day in each.by_day}
    lines = [
        entry
        for entry in _lines_of_charge(comparison, COMMITMENT)
        if is_minimum
        or (
            entry[1].day in days
            and (
                not entry[1].model
                or any(each.is_for_model(entry[1].model) for each in comparison.commitments)
            )
        )
    ]
    if terms and lines:
        advice = "Nothing is missing. The capacity pays for the tokens that it serves."
        yield from _claim_contract_lines(
            comparison, COMMITMENT, [*lines, *_unbilled_capacity_tokens(comparison)], terms, advice
        )


def claim_credits_and_fees(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim the bill's lines for credits and fees that contracts state. The evidence names the contracts' amount
    for the counted calls of the month if it differs by more than a cent.
    """
    for charge in (CREDIT, FEE):
        terms, lines = _sums_stated_by_contracts(comparison, charge), _lines_of_charge(comparison, charge)
        if terms and lines:
            yield from _claim_contract_lines(comparison, charge, lines, terms, "Nothing is wrong.")


def claim_unbilled_contract_amounts(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Yield a claim without an amount for each contract charge that the bill lacks, so that the evidence names
    it.

    Nothing is claimed if another line of the bill may contain the charge. If the bill's prices differ from
    ours, fees and free tokens are not claimed either, because the prices may contain them.
    """
    if not comparison.precision:
        return  # a bill without amounts of money proves no contract charge
    lines = {meter for part, _, meter in comparison.split.parts if part == OTHER}
    left = {meter for _, _, meter in comparison.remainder.entries_of_difference_part(OTHER)} - {"tax"}
    are_prices_ours = all(
        comparison.is_within_rounding(entry)
        for entry in comparison.remainder.entries_of_difference_part(RATE)
    )
    for charge in (COMMITMENT, CREDIT, FEE, ALLOWANCE):
        terms = [
            each for each in _sums_stated_by_contracts(comparison, charge) if abs(each.amount) > COARSEST
        ]
        is_paid = charge in (COMMITMENT, FEE)
        may_have = left - _GIVEN if is_paid else lines & _GIVEN
        is_elsewhere = bool(may_have) or (charge in (FEE, ALLOWANCE) and not are_prices_ours)
        if terms and not is_elsewhere and charge not in set(map(contract_charge_of_line, lines)):
            yield build_claim(
                _CAUSES.get(charge, charge),
                dict.fromkeys(map(ComparisonCell, comparison.days), 0),
                certainty=EXACT,
                evidence=f"the bill has no {_charge_kinds_phrase(terms)}, but {_contracts_phrase(terms)}",
                advice=_ADVICE,
                is_of_tokens=False,
            )


def turn_price_into_hint_if_contract_fee(claim: CauseClaim, comparison: BillComparison) -> CauseClaim:
    """
    Make a claim about a price only likely if its amount may be a contract's fee or allowance, or a part of
    it.
    """
    causes = []
    for charge, sign in ((FEE, 1), (ALLOWANCE, -1)) if claim.cause in OF_PRICES else ():
        whole = sum(abs(each.amount) for each in _sums_stated_by_contracts(comparison, charge))
        if 0 < sign * claim.amount <= whole * (1 + Fraction(SAME)):
            causes.append(_CAUSES.get(charge, charge))
    return replace(claim, beside=(*claim.beside, *causes)) if causes else claim


def contract_agreement_phrase(comparison: BillComparison, charge: str, amount: int) -> str:
    """
    Return the end of a sentence: whether contracts state this amount for a charge. Return "" if they state
    none.
    """
    terms = _sums_stated_by_contracts(comparison, charge)
    if not terms:
        return ""
    stated = sum(each.amount for each in terms)
    if abs(amount - stated) <= max(Fraction(COARSEST), abs(stated) * Fraction(SAME)):
        return f", as the contract {join_names(sorted({each.contract for each in terms}))} states"
    return f", but {_contracts_phrase(terms)}"


def _sums_stated_by_contracts(comparison: BillComparison, charge: str) -> list[ContractSum]:
    """Return the amounts of a charge that contracts state. Capacity is limited to the compared days."""
    if charge != COMMITMENT:
        return [each for each in comparison.sums if each.charge == charge]
    capacity_terms = [
        ContractSum(
            contract=each.term.contract,
            charge=COMMITMENT,
            amount=sum(amount for day, amount in each.by_day.items() if day in comparison.days),
        )
        for each in comparison.commitments
        if not each.by_day.keys().isdisjoint(comparison.days)
    ]
    return [*capacity_terms, *_sums_stated_by_contracts(comparison, MINIMUM)]


def _charge_kinds_phrase(terms: Sequence[ContractSum]) -> str:
    return " and ".join(_WORDS[charge] for charge in sorted({each.charge for each in terms}))


def _contracts_phrase(terms: Sequence[ContractSum]) -> str:
    names, amount = sorted({each.contract for each in terms}), sum(each.amount for each in terms)
    counted = "" if {each.charge for each in terms} == {COMMITMENT} else " for the calls that were counted"
    return f"the contract {join_names(names)} states {format_dollars(amount)}{counted}"


def _lines_of_charge(comparison: BillComparison, charge: str) -> list[DifferenceEntry]:
    return [
        entry
        for entry in comparison.remainder.entries_of_difference_part(OTHER)
        if contract_charge_of_line(entry[2]) == charge
    ]


def _claim_contract_lines(
    comparison: BillComparison,
    charge: str,
    entries: Sequence[DifferenceEntry],
    terms: Sequence[ContractSum],
    advice: str,
) -> Iterator[CauseClaim]:
    lines = [entry for entry in entries if entry[0] == OTHER]
    billed = sum(comparison.remainder.amounts[entry] for entry in lines)
    is_same = abs(billed - sum(each.amount for each in terms)) <= COARSEST
    number = len({cell.day for _, cell, _ in lines})
    days = f"{number:,} {'day' if number == 1 else 'days'}"
    names = join_names(sorted({each.contract for each in terms}))
    claim = comparison.remainder.claim_entries(
        charge,
        entries,
        certainty=EXACT,
        evidence=(
            f"the bill has {format_dollars(billed)} of {_charge_kinds_phrase(terms)} on {days}, "
            + (f"as the contract {names} states" if is_same else f"but {_contracts_phrase(terms)}")
        ),
        advice=advice if is_same else _ADVICE,
    )
    if claim is not None:
        yield claim


def _unbilled_capacity_tokens(comparison: BillComparison) -> list[DifferenceEntry]:
    """Return prepaid tokens that the bill does not list. The ledger counts them at no cost."""
    return [
        (VOLUME, cell, meter)
        for (cell, meter), extra in comparison.remainder.extra.items()
        if extra < 0
        and (VOLUME, cell, meter) not in comparison.remainder.amounts
        and any(
            cell.day in each.by_day and each.is_for_model(cell.model) and each.term.covers_tier(cell.tier)
            for each in comparison.commitments
        )
    ]
