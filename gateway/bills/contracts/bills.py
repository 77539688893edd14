"""
Amounts of contracts as provider bills state them. Pure.

A final bill of a whole month replaces the computed amounts of the terms for which it has lines. The two are never
added. Teams keep their shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from itertools import product

from gateway.bills.billed.spreading import in_turn
from gateway.bills.contracts.declared import COMMITMENT, CREDIT, FEE, LINES, MINIMUM, UNUSED, Contract
from gateway.bills.reconciliation.matching import day_of
from gateway.intake.price_terms import PREPAID
from spool.currencies import Converter, round_product
from spool.ledger import money
from spool.statements import StatementRow

Place = tuple[str, str, str]  # contract, charge and team
Charged = tuple[str, str]  # contract and charge
# Kinds of terms -> the charges that their lines on a bill replace. The first charge decides which lines these are.
_REPLACED: Mapping[Sequence[str], Sequence[str]] = {
    (*PREPAID, MINIMUM): (COMMITMENT, UNUSED, MINIMUM),
    (CREDIT,): (CREDIT,),
    (FEE,): (FEE,),
}


def replace_by_bills(
    parts: MutableMapping[Place, int],
    contracts: Sequence[Contract],
    bills: Mapping[str, Sequence[StatementRow]],
    converter: Converter,
) -> set[Charged]:
    """Replace the parts for which bills have lines, by the provider of the bill. Return the replaced charges."""
    replaced: set[Charged] = set()
    for provider, rows in bills.items():
        for kinds, charges in _REPLACED.items():
            stated = [
                contract.name
                for contract in contracts
                if contract.provider == provider and any(term.kind in kinds for term in contract.terms)
            ]
            billed = _sum((row for row in rows if row.kind in LINES[charges[0]] and row.currency), converter)
            if billed is None or not stated:
                continue
            places = sorted(place for place in parts if place[0] in stated and place[1] in charges)
            places = places or [(stated[0], charges[0], "")]
            weights = [abs(parts.get(place, 0)) for place in places]
            parts.update(zip(places, in_turn(billed, weights), strict=True))
            replaced.update(product(stated, charges))
    return replaced


def _sum(rows: Iterable[StatementRow], converter: Converter) -> int | None:
    """Return the sum of rows, or None if there are none, or if one has no exchange rate."""
    amounts = []
    for row in rows:
        rate = converter.rate(str(row.currency), day_of(row))
        if rate is None:
            return None
        amounts.append(round_product(money.units(f"{row.amount:f}") * rate))
    return sum(amounts) if amounts else None
