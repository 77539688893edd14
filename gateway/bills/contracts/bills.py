"""
Amounts of contracts as provider bills state them. Pure.

A final bill of a whole month replaces the computed amounts of the terms for which it has lines. The two are never
added. Teams keep their shares. A fee by the term stays as computed, because a bill may state it once for all months.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from itertools import product

from gateway.bills.billed.spreading import divide_in_sequence
from gateway.bills.contracts.declared import (
    COMMITMENT,
    CREDIT,
    FEE,
    MINIMUM,
    TERM,
    UNUSED,
    Contract,
    contract_charge_of_line,
)
from gateway.intake.price_terms import PREPAID, PRIORITY
from spool import money
from spool.currencies import CurrencyConverter, round_product_to_units
from spool.statements import ACCRUED, StatementRow, day_of_row

ContractPlace = tuple[str, str, str]  # place of an amount: contract, charge and team
ContractChargeKey = tuple[str, str]  # key of a sum: contract and charge
# Kinds of terms -> the charges that their lines on a bill replace. The first charge decides which lines these are.
_REPLACED: Mapping[Sequence[str], Sequence[str]] = {
    (*PREPAID, MINIMUM): (COMMITMENT, UNUSED, MINIMUM),
    (CREDIT,): (CREDIT,),
    (FEE,): (FEE,),
}


def replace_estimates_by_billed_amounts(
    estimated_parts: MutableMapping[ContractPlace, int],
    contracts: Sequence[Contract],
    bills: Mapping[str, Sequence[StatementRow]],
    converter: CurrencyConverter,
) -> set[ContractChargeKey]:
    """
    Replace the estimated parts of contract charges by the billed amounts, for each provider whose bill has lines for
    them. Return the charges that were replaced.
    """
    replaced: set[ContractChargeKey] = set()
    for provider, rows in bills.items():
        for kinds, charges in _REPLACED.items():
            own = [
                (contract.name, term)
                for contract in contracts
                for term in contract.terms
                if contract.provider == provider and term.kind in kinds and not term.is_container_workload
            ]
            stated = [*dict.fromkeys(name for name, _ in own)]
            are_spread = any(term.kind in (PRIORITY, FEE) and term.per == TERM for _, term in own)
            billed = _sum_rows((row for row in rows if _contract_charge_kind(row) == charges[0]), converter)
            if billed is None or not stated or are_spread:
                continue
            places = sorted(place for place in estimated_parts if place[0] in stated and place[1] in charges)
            places = places or [(stated[0], charges[0], "")]
            weights = [abs(estimated_parts.get(place, 0)) for place in places]
            estimated_parts.update(zip(places, divide_in_sequence(billed, weights), strict=True))
            replaced.update(product(stated, charges))
    return replaced


def _contract_charge_kind(row: StatementRow) -> str:
    is_money = row.currency is not None and row.unit != ACCRUED
    return contract_charge_of_line(row.kind, is_negative=row.amount < 0) if is_money else ""


def _sum_rows(rows: Iterable[StatementRow], converter: CurrencyConverter) -> int | None:
    amounts = []
    for row in rows:
        rate = converter.rate(str(row.currency), day_of_row(row))
        if rate is None:
            return None
        amounts.append(round_product_to_units(money.text_to_units(f"{row.amount:f}") * rate))
    return sum(amounts) if amounts else None
