"""
Large inputs, for which the bill states the context window: their tokens and their price.

The size of a call is the sum of all kinds of its input. So each claim needs equal tokens of all input kinds in its
model, key, tier and day. Otherwise the calls may have other sizes than those that the source reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

from gateway.bills.reconciliation.causes.rates import is_near
from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import EXACT, WEAK, BillComparison, CauseClaim, ClaimedPortion
from gateway.bills.reconciliation.limits import LEAST_DAYS, REGIONAL
from gateway.bills.reconciliation.rate_series import usual_billed_ratio_finder
from gateway.bills.reconciliation.sides import INPUT_METERS, RATE, VOLUME, ComparisonCell, MeterPlace
from gateway.bills.reconciliation.wording import join_names


def claim_context_window_moves(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim tokens that the bill has under another context window. For each kind of token of a day, key, model,
    tier and region, the sums over all windows agree. Moved tokens are valued by the ratio of the two windows'
    list prices.
    """
    extra = comparison.remainder.extra
    sums: dict[MeterPlace, int] = defaultdict(int)
    for (cell, meter), tokens in extra.items():
        sums[cell._replace(context=0), meter] += tokens
    unequal = {cell for (cell, meter), tokens in sums.items() if tokens and meter in INPUT_METERS}
    entries: list[DifferenceEntry] = [
        (VOLUME, cell, meter)
        for cell, meter in extra
        if not sums[cell._replace(context=0), meter] and cell._replace(context=0) not in unequal
    ]
    larger = {cell.context for _, cell, meter in entries if extra[cell, meter] > 0} - {0}
    yield from comparison.claim_entries_with_price_differences(
        "long_context",
        entries,
        EXACT,
        f"the bill has these tokens in calls with more than {min(larger, default=0):,} tokens of input, and Tollhouse "
        "in smaller calls",
        "Let the source report each call. Counters do not state the size of single calls.",
    )


def claim_large_input_price(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim another price of large inputs: paid = worth * s * f. `worth` is the value at our prices. The factor
    f is constant for each kind of token, and s is paid / worth of small inputs in the same cell, or else on
    the same day.

    The amount is paid - worth * s. The factor must exceed every surcharge for a region, because both may
    apply.
    """
    split, remainder = comparison.split, comparison.remainder
    unequal = cells_with_other_input(comparison)
    for model in comparison.compared_models() if split.levels.money_context else ():
        usual_of = usual_billed_ratio_finder(
            split, model, remainder.remaining_billed_amount, lambda cell, _: not cell.context
        )
        factors: dict[str, list[Decimal]] = defaultdict(list)
        portions: dict[DifferenceEntry, ClaimedPortion] = {}
        for entry in comparison.price_difference_entries(model):
            _, cell, meter = entry
            paid, worth = remainder.remaining_billed_amount(cell, meter), split.worth[cell, meter]
            if not cell.context or paid is None or without_size(cell) in unequal:
                continue
            usual = usual_of(cell._replace(context=0), meter)[0][0]
            if not usual:
                continue
            factor = paid / (worth * usual)
            factors[meter].append(Decimal(factor.numerator) / factor.denominator)
            portions[entry] = ClaimedPortion(round(paid - worth * usual))
        if not portions or not all(
            factor - 1 > max(REGIONAL) for found in factors.values() for factor in found
        ):
            continue
        is_one_price = all(is_near(factor, found[0]) for found in factors.values() for factor in found)
        least = min((cell.context for _, cell, _ in portions), default=0)
        words = [f"{meter} at {found[0]:.3f}" for meter, found in sorted(factors.items())]
        yield from comparison.claim_entries_with_price_differences(
            "long_context",
            [entry for entry, portion in portions.items() if portion.amount],
            EXACT if is_one_price else WEAK,
            f"{join_names([model])}: the bill has {', '.join(words)} of our price for inputs over {least:,} tokens"
            + ("" if is_one_price else ", or about as much"),
            "The model costs more for large inputs. If the bill is right, add the price to the price list.",
            portions=portions if is_one_price else None,
        )


def claim_missing_large_input_surcharge(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim large inputs billed at the base price: paid = worth - premium, where the premium is the part of our
    value that the list adds for large inputs. The amount is -premium.

    This must hold for all large inputs of a model, on at least LEAST_DAYS days.
    """
    split, remainder = comparison.split, comparison.remainder
    unequal = cells_with_other_input(comparison)
    for model in comparison.compared_models():
        premiums = {
            entry[1:]: premium
            for entry in comparison.price_difference_entries(model)
            if (premium := split.premium.get(entry[1:], 0)) and without_size(entry[1]) not in unequal
        }
        rest = {place: remainder.amounts.get((RATE, *place), 0) for place in premiums}
        expected = {place: -premium for place, premium in premiums.items()}
        if len({cell.day for cell, _ in rest}) >= LEAST_DAYS and comparison.are_amounts_as_expected(
            rest, expected
        ):
            portions: dict[DifferenceEntry, ClaimedPortion] = {
                (RATE, *place): ClaimedPortion(amount) for place, amount in rest.items()
            }
            yield from comparison.claim_entries_with_price_differences(
                "premium_absent",
                [*portions],
                EXACT,
                f"{join_names([model])}: large inputs, which cost more in the list, were billed at the price of others",
                "If the bill is right, the price list should not have a price for large inputs of this model.",
                portions=portions,
            )


def cells_with_other_input(comparison: BillComparison) -> set[ComparisonCell]:
    """Return the cells of amounts, without sizes, in which a kind of input differs although no call is missing."""
    sums: dict[MeterPlace, int] = defaultdict(int)
    for (cell, meter), tokens in comparison.split.extra.items():
        if meter in INPUT_METERS and cell not in comparison.remainder.explained:
            sums[without_size(comparison.split.levels.money_cell(cell)), meter] += tokens
    return {cell for (cell, _), tokens in sums.items() if tokens}


def without_size(cell: ComparisonCell) -> ComparisonCell:
    return cell._replace(region="", context=0)
