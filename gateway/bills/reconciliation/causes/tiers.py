"""The price of tiers that the price list lacks, such as flex or priority of a new model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

from gateway.bills.reconciliation.cells import DifferenceEntry, billed_meter
from gateway.bills.reconciliation.claims import EXACT, BillComparison, CauseClaim, ClaimedPortion
from gateway.bills.reconciliation.limits import LEAST_DAYS
from gateway.bills.reconciliation.sides import OUTPUT, RATE, VOLUME, WHOLE, MeterPlace
from gateway.bills.reconciliation.wording import join_names


def claim_price_of_tier_missing_in_price_list(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim the price of a tier that both sides have and that the price list lacks: one factor of the standard
    price for all kinds of token.
    """
    for model, tier in sorted(comparison.split.unlisted):
        fit = fit_unlisted_tier(comparison, model, tier)
        if fit is None:
            continue
        factor, portions = fit
        yield from comparison.claim_entries_with_price_differences(
            "tier_price",
            [*portions],
            EXACT,
            f"{join_names([model])}, tier {tier}: every kind of token was billed at {float(factor):.4f} "
            "of the standard "
            "price, and the price list has no price for the tier",
            "Copy the price of the tier into [[prices.override]] with its `tier`.",
            portions=portions,
        )


def fit_unlisted_tier(
    comparison: BillComparison, model: str, tier: str
) -> tuple[Fraction, dict[DifferenceEntry, ClaimedPortion]] | None:
    """
    Return the factor f of a tier and its amounts: paid = worth + (f - 1) * w. Here `worth` is the value of a
    cell's tokens at our prices, and w the part of it that the tier's tokens have.

    One factor must fit all cells of the model, input and output, on at least LEAST_DAYS days, and must fit
    better than one factor for all tokens of the model.
    """
    split, remainder = comparison.split, comparison.remainder
    inside = _billed_value_of_tier_by_meter_place(comparison, model, tier)
    places: list[MeterPlace] = [entry[1:] for entry in comparison.price_difference_entries(model)]
    rest = {place: remainder.amounts.get((RATE, *place), 0) for place in places}
    whole = sum(inside[place] for place in places)
    kinds = {WHOLE if meter == WHOLE else meter == OUTPUT for _, meter in places}
    days = {place[0].day for place in places if inside[place]}
    if not whole or len(days) < LEAST_DAYS or (len(kinds) < 2 and kinds != {WHOLE}):
        return None
    surcharge = Fraction(sum(rest[place] for place in places if inside[place]), whole)
    share = Fraction(sum(rest.values()), sum(split.worth[place] for place in places))
    of_tier = {place: round(surcharge * inside[place]) for place in places}
    of_all = {place: round(share * split.worth[place]) for place in places}
    if not comparison.are_amounts_as_expected(rest, of_tier) or comparison.are_amounts_as_expected(
        rest, of_all
    ):
        return None
    portions: dict[DifferenceEntry, ClaimedPortion] = {
        (RATE, *place): ClaimedPortion(rest[place]) for place in places if rest[place] and inside[place]
    }
    return 1 + surcharge, portions


def _billed_value_of_tier_by_meter_place(
    comparison: BillComparison, model: str, tier: str
) -> dict[MeterPlace, int]:
    split = comparison.split
    worth: dict[MeterPlace, int] = defaultdict(int)
    for cell, meter in split.values:
        if cell.model == model and cell.tier == tier:
            coarse = split.levels.money_cell(cell)
            value = comparison.remainder.billed_value_and_tokens((VOLUME, cell, meter)).amount
            worth[coarse, billed_meter(split, coarse, meter)] += value
    return worth
