"""Surcharges that no row of a bill names: on the calls of one key, or on every line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction

from gateway.bills.contracts.declared import FEE
from gateway.bills.reconciliation.causes.contracts import contract_agreement_phrase
from gateway.bills.reconciliation.causes.rates import known_factor_cause_and_evidence
from gateway.bills.reconciliation.cells import DifferenceEntry, billed_meter
from gateway.bills.reconciliation.claims import EXACT, WEAK, BillComparison, CauseClaim, ClaimedPortion
from gateway.bills.reconciliation.limits import LEAST_DAYS, MOST_LISTED, OWNER_DAYS
from gateway.bills.reconciliation.sides import INPUT, OTHER, OUTPUT, RATE, MeterPlace
from gateway.bills.reconciliation.wording import join_names

_ADVICE = (
    "Check the contract of this key. If the bill is right, its price cannot be an own price of all calls."
)


def claim_key_price(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim that one key has another price, on a bill that does not name keys. In each cell (day, model, tier
    and so on), billed amount - our value = s * w. Here w is our value of the key's calls, and s is the same
    number everywhere.

    This must hold on at least OWNER_DAYS days and for all models. If it holds for a second key, nothing is
    claimed.
    """
    split, remainder = comparison.split, comparison.remainder
    if split.levels.money_key or split.extra:
        return
    places: list[MeterPlace] = [
        entry[1:]
        for model in comparison.compared_models()
        for entry in comparison.price_difference_entries(model)
    ]
    rest = {place: remainder.amounts.get((RATE, *place), 0) for place in places}
    if all(comparison.is_within_rounding((RATE, *place)) for place in places):
        return
    by_key = _value_by_key_and_place(comparison)
    largest = sorted(by_key, key=lambda key: -sum(by_key[key].values()))[:MOST_LISTED]
    shares = {
        key: share
        for key in largest
        if (share := _constant_difference_share_of_value(comparison, rest, by_key[key])) is not None
    }
    if len(by_key) < 2 or len(shares) != 1:
        return
    [(key, share)] = shares.items()
    portions: dict[DifferenceEntry, ClaimedPortion] = {
        (RATE, *place): ClaimedPortion(amount)
        for place, amount in rest.items()
        if amount and by_key[key].get(place)
    }
    yield from comparison.claim_entries_with_price_differences(
        "key_price",
        [*portions],
        EXACT,
        f"the calls of the key {join_names([key])} were billed at {float(1 + share):.4f} of our price, and those of "
        f"{len(by_key) - 1:,} other keys at our price",
        _ADVICE,
        portions=portions,
    )


def _value_by_key_and_place(comparison: BillComparison) -> dict[str, dict[MeterPlace, int]]:
    split = comparison.split
    worth: dict[str, dict[MeterPlace, int]] = defaultdict(lambda: defaultdict(int))
    for use in comparison.uses:
        cell = split.levels.money_cell(split.levels.token_cell(use))
        for meter, value in use.values.items():
            worth[use.key][cell, billed_meter(split, cell, meter)] += value
    return worth


def _constant_difference_share_of_value(
    comparison: BillComparison,
    difference_by_place: Mapping[MeterPlace, int],
    value_by_place: Mapping[MeterPlace, int],
) -> Fraction | None:
    whole = sum(value_by_place.get(place, 0) for place in difference_by_place)
    days = {cell.day for (cell, _), value in value_by_place.items() if value}
    if whole <= 0 or len(days) < OWNER_DAYS:
        return None
    share = Fraction(sum(difference_by_place.values()), whole)
    expected = {place: round(share * value_by_place.get(place, 0)) for place in difference_by_place}
    return share if comparison.are_amounts_as_expected(difference_by_place, expected) else None


def claim_fee(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim a fee on every line: paid is the value at our prices times one factor above 1, for all kinds of
    tokens of at least two models. No tier or region may have this factor.
    """
    split, remainder = comparison.split, comparison.remainder
    places: list[MeterPlace] = [
        entry[1:]
        for model in comparison.compared_models()
        for entry in comparison.price_difference_entries(model)
    ]
    worth = sum(split.worth[place] for place in places)
    rest = {place: remainder.amounts.get((RATE, *place), 0) for place in places}
    share = Fraction(sum(rest.values()), worth) if worth else Fraction(0)
    factor = 1 + Decimal(share.numerator) / share.denominator
    models = {cell.model for cell, _ in places}
    if share <= 0 or len(models) < 2 or len({cell.day for cell, _ in places}) < LEAST_DAYS:
        return
    if known_factor_cause_and_evidence({INPUT: factor, OUTPUT: factor}, are_regions_known=False) is not None:
        return
    if not comparison.are_amounts_as_expected(
        rest, {place: round(share * split.worth[place]) for place in places}
    ):
        return
    # a fee would also be on the other lines of the bill
    is_sure = not remainder.entries_of_difference_part(OTHER)
    yield from comparison.claim_entries_with_price_differences(
        "fee",
        [(RATE, *place) for place in places],
        EXACT if is_sure else WEAK,
        f"every line of {len(models):,} models was billed at {factor:.4f} of our price"
        f"{contract_agreement_phrase(comparison, FEE, sum(rest.values()))}",
        "Nothing is missing. The provider or a reseller adds this share to every line.",
        portions={(RATE, *place): ClaimedPortion(amount) for place, amount in rest.items() if amount},
        alternative_causes=() if is_sure else ("price_change",),
    )
