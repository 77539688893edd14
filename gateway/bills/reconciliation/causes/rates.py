"""
Tokens that agree on both sides, but were billed at another price: tiers, discounts, regions, large inputs,
expensive cache writes, or changed prices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction

from gateway.bills.reconciliation.causes.exchanged_tiers import CLAIM_IT
from gateway.bills.reconciliation.causes.regions import REGION, has_known_regions
from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import (
    EXACT,
    STRONG,
    TIER_NOT_GIVEN,
    WEAK,
    BillComparison,
    CauseClaim,
    ClaimedPortion,
)
from gateway.bills.reconciliation.limits import HOUR_WRITE, LEAST_DAYS, NEAR_HALF, NOTHING, SAME
from gateway.bills.reconciliation.rate_series import (
    BilledRatioSeries,
    cell_rate_series,
    days_with_rates,
    group_days_by_ratio,
    usual_billed_ratio_finder,
)
from gateway.bills.reconciliation.sides import (
    CACHE_READ,
    INPUT,
    OUTPUT,
    OWN,
    RATE,
    STANDARD,
    WHOLE,
    WRITE_1H,
    WRITE_5M,
    ComparisonCell,
    MeterPlace,
)
from gateway.bills.reconciliation.wording import (
    day_text,
    format_dollars,
    join_names,
    price_per_million_tokens,
)

_ONE = Decimal(1)
_KeyTierRegionContext = tuple[str, str, str, int]  # key, tier, region and context window of a price
_OVERRIDE = "If the bill is right, copy its price into [[prices.override]]; the report shows the lines."
_WRITES = frozenset({WRITE_5M, WRITE_1H, "cache_write"})
# known price factors, with the names that providers use for them
_FACTORS = (
    (Decimal("0.5"), "tier", "half the price: batch or flex"),
    (Decimal("1.1"), REGION, "1.1 times the price, as for a selected region"),
    (Decimal("1.75"), "tier", "1.75 times the price: priority"),
    (Decimal("1.8"), "tier", "1.8 times the price: priority"),
    (Decimal(2), "tier", "twice the price: priority or fast"),
    (Decimal("2.5"), "tier", "2.5 times the price: priority or fast"),
)


def claim_reported_costs(comparison: BillComparison) -> Iterator[CauseClaim]:
    """Claim reported costs that agree with the bill, while list prices differ from both."""
    remainder, levels = comparison.remainder, comparison.split.levels
    own_amounts: dict[object, int] = defaultdict(int)
    rate: dict[object, int] = defaultdict(int)
    for entry, amount in remainder.amounts.items():
        if entry[0] in (OWN, RATE):
            (own_amounts if entry[0] == OWN else rate)[levels.money_cell(entry[1])] += amount
    undone = {
        cell
        for cell, amount in own_amounts.items()
        if amount and abs(amount + rate[cell]) <= abs(amount) // 100
    }
    entries = [
        entry
        for entry in remainder.amounts
        if entry[0] in (OWN, RATE) and levels.money_cell(entry[1]) in undone
    ]
    difference = sum(abs(own_amounts[cell]) for cell in undone)
    claim = remainder.claim_entries(
        "reported_cost",
        entries,
        certainty=STRONG,
        evidence=(
            "the costs that sources report agree with the bill; list prices differ from both by "
            f"{format_dollars(difference)}"
        ),
        advice=_OVERRIDE,
    )
    if claim is not None:
        yield claim


def claim_missing_discount(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim the discount of a tier that the bill does not give: paid = F * s. F is the value at the prices of
    the standard tier, which exceeds our value `worth`. s is paid / worth of tokens without a discount in the
    same cell or on the same day.

    The amount is paid - worth * s. This must hold for most amounts of a model, on at least LEAST_DAYS days.
    """
    split, remainder = comparison.split, comparison.remainder
    for model in comparison.compared_models():
        usual_of = usual_billed_ratio_finder(
            split,
            model,
            remainder.remaining_billed_amount,
            lambda *place: split.full[place] <= split.worth[place] and place[0].tier == STANDARD,
        )
        portions: dict[DifferenceEntry, ClaimedPortion] = {}
        number = 0
        # whether any amount has the discount of its tier, and whether any amount without the discount is on
        # a day without a usual price
        is_given = is_only_here = False
        for entry in comparison.price_difference_entries(model):
            _, cell, meter = entry
            paid, worth = remainder.remaining_billed_amount(cell, meter), split.worth[cell, meter]
            if paid is None or split.full[cell, meter] <= worth:
                continue
            candidates, are_of_day = usual_of(cell._replace(tier=STANDARD), meter)
            if not candidates[0]:
                continue
            if comparison.is_within_rounding(entry, round(worth * candidates[0])):
                is_given = True
                continue
            number += 1
            for usual in candidates:
                full = split.full[cell, meter] * usual
                if abs(paid - full) <= Fraction(SAME) * full or comparison.is_within_rounding(
                    entry, round(full)
                ):
                    portions[entry] = ClaimedPortion(round(paid - worth * usual))
                    is_only_here |= not are_of_day
                    break
        days = {cell.day for _, cell, _ in portions}
        if len(days) >= LEAST_DAYS and len(portions) * 2 > number:
            # a double price for large inputs would give the same amounts as the missing discount
            are_large = len({cell.day for _, cell, _ in portions if not cell.context}) < LEAST_DAYS
            yield from comparison.claim_entries_with_price_differences(
                TIER_NOT_GIVEN,
                [*portions],
                EXACT,
                f"{join_names([model])}: the source and the bill have these tokens in a tier with a "
                "discount, but they were "
                "billed at the standard price",
                CLAIM_IT,
                portions=portions,
                # causes that would give the same amounts, such as a double price on these days
                alternative_causes=[
                    *["price_on_days"] * (is_given and is_only_here),
                    *["long_context"] * are_large,
                ],
            )


def claim_price_differences(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim price differences: one factor for everything, surcharges for large inputs, expensive cache writes, a
    changed price, or prices of certain days.

    Each model is first checked as a whole, unless its keys, tiers and regions have different factors. If that
    shows no clear price, they are checked separately, as far as the bill's amounts distinguish them. Only
    cells with equal tokens and more than a rounding difference count.
    """
    differing_cells = {comparison.split.levels.money_cell(cell) for cell, _ in comparison.split.extra}
    for model in comparison.compared_models():
        yield from _claim_price_per_key_tier_or_region(comparison, model)
        if (claim := _claim_price_factor_of_most_days(comparison, model)) is not None:
            yield claim
        place_claims = [*_claim_price_of_cells(comparison, model, lambda cell: True)]
        yield from place_claims
        places = {
            _key_tier_region_and_context(cell) for _, cell, _ in comparison.remainder.rate_entries(model)
        }
        if (
            place_claims
            or len({_key_tier_region_and_context(cell) for cell in comparison.split.cells_of_model(model)})
            < 2
        ):
            continue
        for cell_group in sorted(places):
            entries = [
                entry
                for entry in comparison.remainder.rate_entries(model)
                if _key_tier_region_and_context(entry[1]) == cell_group
            ]
            if not all(
                cell in differing_cells or comparison.is_within_rounding((part, cell, meter))
                for part, cell, meter in entries
            ):
                yield from _claim_price_of_cells(
                    comparison, model, _filter_for_group_cells_except(cell_group, differing_cells)
                )


def _claim_price_per_key_tier_or_region(comparison: BillComparison, model: str) -> Iterator[CauseClaim]:
    split = comparison.split
    groups: dict[_KeyTierRegionContext, dict[MeterPlace, int]] = defaultdict(dict)
    for entry in comparison.price_difference_entries(model):
        groups[_key_tier_region_and_context(entry[1])][entry[1:]] = comparison.remainder.amounts.get(entry, 0)
    factors: dict[_KeyTierRegionContext, Fraction] = {}
    for name, rest in groups.items():
        if all(comparison.is_negligible(place, amount) for place, amount in rest.items()):
            factors[name] = Fraction(0)
            continue
        factors[name] = Fraction(sum(rest.values()), sum(split.worth[place] for place in rest))
        if not comparison.are_amounts_as_expected(
            rest, {place: round(factors[name] * split.worth[place]) for place in rest}
        ):
            return
    if not factors or max(factors.values()) - min(factors.values()) <= Fraction(SAME):
        return
    for name, share in sorted(factors.items()):
        if not share:
            continue
        factor = 1 + Decimal(share.numerator) / share.denominator
        ratios = {meter: factor for _, meter in groups[name]}
        known = known_factor_cause_and_evidence(
            ratios, has_known_regions(split, model, {cell.day for cell, _ in groups[name]})
        )
        cause, sure, words = known or (
            "price_change",
            STRONG,
            f"every kind of token was billed at {factor:.4f} of our price",
        )
        yield from comparison.claim_entries_with_price_differences(
            cause,
            [(RATE, *place) for place in groups[name]],
            sure,
            f"{_model_key_tier_region_text(model, {name})}: {words}",
            _ADVICE.get(cause, _OVERRIDE),
            portions={
                (RATE, *place): ClaimedPortion(amount) for place, amount in groups[name].items() if amount
            },
            alternative_causes=alternative_causes_of_factor(cause, factor),
        )


def _claim_price_factor_of_most_days(comparison: BillComparison, model: str) -> CauseClaim | None:
    """
    Claim one factor between billed amounts and our prices, on most days, or on all days before a price
    change.

    A further price on the other days stays unclaimed.
    """
    entries = comparison.remainder.rate_entries(model)
    differing_meters = {meter for _, _, meter in entries}
    cells = comparison.split.cells_of_model(model)
    meters = cell_rate_series(
        comparison.split, cells, differing_meters, comparison.remainder.remaining_billed_amount
    )
    usual, other_days = _days_at_usual_and_other_ratios(meters)
    are_few = all(series.billed_ratio_periods() is not None for series in meters.values()) or bool(
        group_days_by_ratio(meters)
    )
    if not usual or not other_days or not are_few:
        return None
    ratios = _ratios_on_days(usual, meters)
    known = known_factor_cause_and_evidence(ratios, has_known_regions(comparison.split, model, usual))
    other_ratios = _ratios_on_days(other_days, meters)
    if not all(ratios.values()):
        return None  # the price is 0, so no surcharge can be added to it
    if known is None or all(abs(ratio - _ONE) <= SAME for ratio in other_ratios.values()):
        return None  # the other days have our price, so no price applies in addition to the usual factor
    cause, sure, description = known
    factor = sum(ratios.values(), Decimal(0)) / len(ratios)
    portions = {
        entry: ClaimedPortion(round((factor - 1) * comparison.split.worth[entry[1], entry[2]]))
        for entry in entries
        if entry[1].day in other_days and (entry[1], entry[2]) in comparison.split.worth
    }
    return comparison.remainder.claim_entries(
        cause,
        [entry for entry in entries if entry[1].day in usual | other_days],
        certainty=sure,
        evidence=(
            f"{_model_key_tier_region_text(model, {_key_tier_region_and_context(cell) for _, cell, _ in entries})}: "
            f"{description}, and on {len(other_days):,} days another price in addition"
        ),
        advice=_ADVICE.get(cause, _OVERRIDE),
        portions=portions,
        alternative_causes=alternative_causes_of_factor(cause, factor),
    )


def _ratios_on_days(days: Collection[int], meters: Mapping[str, BilledRatioSeries]) -> dict[str, Decimal]:
    chosen = {meter: set(days) & series.worth.keys() for meter, series in meters.items()}
    return {
        meter: meters[meter].billed_ratio(days_of_meter)
        for meter, days_of_meter in chosen.items()
        if days_of_meter
    }


def _days_at_usual_and_other_ratios(meters: Mapping[str, BilledRatioSeries]) -> tuple[set[int], set[int]]:
    """
    Return the days with the usual price and the other days. All kinds of tokens must have the same ratio
    other than 1 on the usual days. These must be most days, or more than LEAST_DAYS days that all come before
    the others. Otherwise, both groups are empty.
    """
    days = sorted(days_with_rates(meters))
    of_day = {
        day: [series.billed_ratio({day}) for series in meters.values() if day in series.worth] for day in days
    }
    first = {day: ratios[0] for day, ratios in of_day.items()}
    alike_days = [day for day in days if all(is_near(ratio, first[day]) for ratio in of_day[day])]
    groups: list[list[int]] = []
    for day in alike_days:
        group = next((group for group in groups if is_near(first[day], first[group[0]])), None)
        if group is None:
            groups.append([day])
        else:
            group.append(day)
    for group in groups:
        other_days = set(days) - set(group)
        is_first = (
            bool(other_days)
            and group[0] == days[0]
            and max(group) < min(other_days)
            and len(group) > LEAST_DAYS
        )
        if (len(group) * 2 > len(days) or is_first) and abs(of_day[group[0]][0] - _ONE) > SAME:
            return set(group), other_days
    return set(), set()


def _key_tier_region_and_context(cell: ComparisonCell) -> _KeyTierRegionContext:
    return cell.key, cell.tier, cell.region, cell.context


def _filter_for_group_cells_except(
    cell_group: _KeyTierRegionContext, excluded_cells: Collection[ComparisonCell]
) -> Callable[[ComparisonCell], bool]:
    return lambda cell: _key_tier_region_and_context(cell) == cell_group and cell not in excluded_cells


def _claim_price_of_cells(
    comparison: BillComparison, model: str, is_chosen_cell: Callable[[ComparisonCell], bool]
) -> Iterator[CauseClaim]:
    entries = [entry for entry in comparison.remainder.rate_entries(model) if is_chosen_cell(entry[1])]
    differing_meters, days = {meter for _, _, meter in entries}, {cell.day for _, cell, _ in entries}
    cells = set(filter(is_chosen_cell, comparison.split.cells_of_model(model)))
    meters = cell_rate_series(
        comparison.split, cells, differing_meters, comparison.remainder.remaining_billed_amount
    )
    ratios = {meter: days.billed_ratio() for meter, days in meters.items()}
    if not ratios or all(abs(ratio - _ONE) <= NOTHING for ratio in ratios.values()):
        return
    beyond_rounding = {entry[2] for entry in entries if not comparison.is_within_rounding(entry)}
    free = {meter for meter in beyond_rounding if not ratios.get(meter, _ONE)}
    if free and free < ratios.keys():
        claim = _claim_unbilled_token_kinds(comparison, model, entries, free)
        if claim is not None:
            yield claim
            yield from _claim_price_of_cells(comparison, model, is_chosen_cell)
        return
    priced_days = days_with_rates(meters)
    if (
        len(priced_days)
        <= LEAST_DAYS
        < len({cell.day for cell in comparison.split.cells_of_model(model)}) // 2
    ):
        return  # equal price differences on few days do not prove another price
    if _is_only_on_days_with_token_differences(
        comparison, entries, {entry[1].day for entry in entries if not comparison.is_within_rounding(entry)}
    ):
        return
    name = _model_key_tier_region_text(model, {_key_tier_region_and_context(cell) for _, cell, _ in entries})
    steps = {meter: days.billed_ratio_periods() for meter, days in meters.items()}
    if any(meter_steps is None for meter_steps in steps.values()):
        yield from _claim_price_of_certain_days(comparison, name, entries, meters)
        return
    constant = all(meter_steps is not None and len(meter_steps) == 1 for meter_steps in steps.values())
    # An earlier check has compared the prices of regions. If all compared cells state a region, one region's
    # factor may still be unexplained.
    is_region_known = has_known_regions(comparison.split, model, days) and not all(
        cell.region for _, cell, _ in entries
    )
    known = (
        known_factor_cause_and_evidence(
            ratios, is_region_known, are_others_claimed=_are_other_prices_claimed(comparison, cells, ratios)
        )
        if constant
        else None
    )
    cause, sure, evidence = (
        known
        or (
            (
                long_context_surcharge_cause_and_evidence(ratios)
                or one_hour_cache_write_cause_and_evidence(ratios)
            )
            if constant
            else None
        )
        or _price_change_cause_certainty_and_evidence(meters, steps)
    )
    since = max(
        (
            meter_steps[1][0]
            for meter_steps in steps.values()
            if meter_steps is not None and len(meter_steps) == 2
        ),
        default=0,
    )
    changed_meters = [
        meter
        for meter, meter_steps in steps.items()
        if any(abs(ratio - _ONE) > NOTHING for _, ratio in meter_steps or ())
    ]
    if since and _is_only_on_days_with_token_differences(
        comparison, entries, {day for day in days if day >= since}
    ):
        return
    if since and len(changed_meters) < 2 and sum(day >= since for day in priced_days) < 2:
        # another price per call, or a line that is not about tokens, is likelier than a price change
        return
    before = {day for day in days if day < since}
    is_ours = all(abs(meter_steps[-1][1] - _ONE) <= NOTHING for meter_steps in steps.values() if meter_steps)
    if before and (
        _is_only_on_days_with_token_differences(comparison, entries, before)
        or (is_ours and _are_few_days_with_token_differences(comparison, entries, before))
    ):
        yield from _claim_price_of_cells(
            comparison, model, lambda cell: is_chosen_cell(cell) and cell.day >= since
        )
        return  # the first days show no price, because they have calls on only one side
    claim = comparison.remainder.claim_entries(
        cause,
        [entry for entry in entries if entry[2] in changed_meters],
        certainty=sure,
        evidence=f"{name}: {evidence}",
        advice=_ADVICE.get(cause, _OVERRIDE),
        since_day=since,
        alternative_causes=(
            *alternative_causes_of_factor(cause, next(iter(ratios.values()))),
            *_fee_if_plausible_before_price_change(steps, since),
        ),
    )
    if claim is not None:
        yield claim


def _fee_if_plausible_before_price_change(
    ratio_steps_by_meter: Mapping[str, list[tuple[int, Decimal]] | None], change_day: int
) -> tuple[str, ...]:
    first = [meter_steps[0][1] for meter_steps in ratio_steps_by_meter.values() if meter_steps]
    is_one = len(first) > 1 and all(is_near(ratio, first[0]) for ratio in first)
    return ("fee",) if change_day and is_one and abs(first[0] - _ONE) > SAME else ()


def _claim_unbilled_token_kinds(
    comparison: BillComparison, model: str, entries: Iterable[DifferenceEntry], kinds: Collection[str]
) -> CauseClaim | None:
    """Claim kinds of tokens that the bill does not charge. Other kinds may have another price as well."""
    return comparison.remainder.claim_entries(
        "price_change",
        [entry for entry in entries if entry[2] in kinds],
        certainty=STRONG,
        evidence=f"{join_names([model])}: nothing was billed for {join_names(sorted(kinds))}, on all days",
        advice=_OVERRIDE,
    )


def _are_other_prices_claimed(
    comparison: BillComparison, cells: Collection[ComparisonCell], except_meters: Collection[str]
) -> bool:
    paid = [
        comparison.remainder.remaining_billed_amount(*cell_meter)
        for cell_meter in comparison.split.worth
        if cell_meter[0] in cells
        and cell_meter[1] not in except_meters
        and cell_meter in comparison.split.paid
    ]
    return bool(paid) and all(paid_rate is None for paid_rate in paid)


def _claim_price_of_certain_days(
    comparison: BillComparison,
    cells_description: str,
    entries: list[DifferenceEntry],
    meters: Mapping[str, BilledRatioSeries],
) -> Iterator[CauseClaim]:
    """
    Yield claims that a price applied only on certain days. A price that lasts to the end is claimed as a
    price change.
    """
    every = sorted(days_with_rates(meters))
    differing_cells = {comparison.split.levels.money_cell(cell) for cell, _ in comparison.split.extra}
    sets = group_days_by_ratio(meters)
    differing_days = {day for days, _ in sets for day in days}
    of_all = _cause_of_most_common_known_factor(sets) if differing_days == set(every) else ()
    # A price that lasts to the end also applies to the later days that have a second price, so claim it
    # first.
    for days, off_ratios in sorted(
        sets, key=lambda item: not _is_lasting_to_end(item[0], every, differing_days)
    ):
        if _is_only_on_days_with_token_differences(comparison, entries, set(days)) or all(
            map(comparison.is_within_rounding, (e for e in entries if e[1].day in days))
        ):
            continue
        stays = _is_lasting_to_end(days, every, differing_days)
        since = _price_start_day(days, off_ratios, every, sets) if stays else 0
        later = {day for day in every if day >= since}
        first = next(iter(off_ratios.values()))
        is_one_ratio = len(off_ratios) > 1 and all(is_near(ratio, first) for ratio in off_ratios.values())
        is_of_all = is_one_ratio and all(
            meter in off_ratios
            for meter, series in meters.items()
            if not series.worth.keys().isdisjoint(days)
        )
        if not is_of_all and any(cell in differing_cells and cell.day in days for _, cell, _ in entries):
            # the different price is that of another tier or input size, and does not depend on the day
            continue
        kinds = [f"{meter} at {ratio:.4f}" for meter, ratio in sorted(off_ratios.items())]
        rate_text = f"every kind of token at {first:.4f}" if is_one_ratio else ", ".join(kinds)
        chosen = [entry for entry in entries if entry[1].day in days and entry[2] in off_ratios]
        portions = (
            _portions_due_to_price_on_days(comparison, entries, later - set(days), off_ratios)
            if stays
            else {}
        )
        claim = comparison.remainder.claim_entries(
            "price_change" if stays else "price_on_days",
            [*chosen, *portions],
            certainty=STRONG,
            evidence=f"{cells_description}: {_days_phrase([since or days[0], *days[1:]], lasts_to_end=stays)} "
            f"{rate_text} of our price",
            advice=_OVERRIDE if stays else _ADVICE["price_on_days"],
            since_day=since,
            portions=portions,
            alternative_causes=(
                *_cause_of_factor_on_most_days(days, every, off_ratios, is_one_ratio=is_one_ratio),
                *of_all,
            ),
        )
        if claim is not None:
            yield claim


def _is_lasting_to_end(days: list[int], all_days: list[int], differing_days: Collection[int]) -> bool:
    later = {day for day in all_days if day >= days[0]}
    is_to_the_end = days[-1] >= all_days[-2] and later - set(differing_days) <= set(days)
    return len(days) * 2 > len(later) > 1 and is_to_the_end


def _price_start_day(
    days: list[int],
    ratios_by_meter: Mapping[str, Decimal],
    all_days: list[int],
    days_and_ratios: list[tuple[list[int], dict[str, Decimal]]],
) -> int:
    product_days = {
        day
        for other_days, known in days_and_ratios
        if other_days is not days
        and any(
            _is_product_of_ratios(known, ratios_by_meter, ratios)
            for set_days, ratios in days_and_ratios
            if set_days is not days and set_days is not other_days
        )
        for day in other_days
    }
    # the price may begin earlier, on days whose ratios are the products of its ratios and those of another price
    begin = days[0]
    for day in reversed([day for day in all_days if day < begin]):
        if day not in product_days:
            break
        begin = day
    return begin


def _is_product_of_ratios(
    known: Mapping[str, Decimal], first: Mapping[str, Decimal], second: Mapping[str, Decimal]
) -> bool:
    return all(
        meter in first and meter in second and is_near(ratio, first[meter] * second[meter], 2 * SAME)
        for meter, ratio in known.items()
    )


def _portions_due_to_price_on_days(
    comparison: BillComparison,
    entries: list[DifferenceEntry],
    days: Collection[int],
    ratios_by_meter: Mapping[str, Decimal],
) -> dict[DifferenceEntry, ClaimedPortion]:
    return {
        entry: ClaimedPortion(
            round((ratios_by_meter[entry[2]] - 1) * comparison.split.worth[entry[1], entry[2]])
        )
        for entry in entries
        if entry[1].day in days
        and entry[2] in ratios_by_meter
        and (entry[1], entry[2]) in comparison.split.worth
    }


def _cause_of_factor_on_most_days(
    days: list[int], all_days: list[int], ratios_by_meter: Mapping[str, Decimal], *, is_one_ratio: bool
) -> tuple[str, ...]:
    # if a known factor holds on most days, it may hold on all, while another price cancels it on the rest
    known = (
        known_factor_cause_and_evidence(ratios_by_meter, are_regions_known=True)
        if is_one_ratio and len(days) * 2 > len(all_days)
        else None
    )
    return () if known is None else (known[0],)


def _cause_of_most_common_known_factor(
    days_and_ratios: list[tuple[list[int], dict[str, Decimal]]],
) -> tuple[str, ...]:
    # if no day has our price, the known factor of most days may apply to all days
    candidates = []
    for days, ratios in days_and_ratios:
        if (
            len(ratios) > 1
            and (known := known_factor_cause_and_evidence(ratios, are_regions_known=True)) is not None
        ):
            candidates.append((len(days), known[0]))
    return (max(candidates)[1],) if candidates else ()


def _is_only_on_days_with_token_differences(
    comparison: BillComparison, entries: list[DifferenceEntry], days: set[int]
) -> bool:
    model, coarse = entries[0][1].model, comparison.split.levels.money_cell
    if days.isdisjoint(
        cell.day
        for cell, sums in comparison.split.counted.items()
        if sums.calls and coarse(cell).model == model
    ):
        return True
    differing_days = {
        cell.day for fine_cell, _ in comparison.split.extra if (cell := coarse(fine_cell)).model == model
    }
    clean = {cell.day for cell in comparison.split.cells_of_model(model)} - differing_days
    return bool(clean) and len(days) <= LEAST_DAYS and days.isdisjoint(clean)


def _are_few_days_with_token_differences(
    comparison: BillComparison, entries: list[DifferenceEntry], days: set[int]
) -> bool:
    differing_days = {cell.day for cell, _ in comparison.split.extra if cell.model == entries[0][1].model}
    return len(days) <= LEAST_DAYS and days <= differing_days


def _days_phrase(days: list[int], *, lasts_to_end: bool) -> str:
    return (
        f"from {day_text(days[0])} on"
        if lasts_to_end
        else f"on {join_names([day_text(day) for day in days], max_names=31)}"
    )


def _model_key_tier_region_text(model: str, groups: set[_KeyTierRegionContext]) -> str:
    parts = [join_names([model]) if model else "all tokens"]
    if len(groups) == 1:
        [(key, tier, region, context)] = groups
        parts += [f"key {join_names([key])}"] if key else []
        parts += [f"tier {tier}"] if tier else []
        parts += [f"region {region}"] if region else []
        parts += [f"inputs over {context:,} tokens"] if context else []
    return ", ".join(parts)


_ADVICE = {
    REGION: "Let the source report the region that processed each call, so that Tollhouse can match it.",
    "price_on_days": "Check whether the report repeats the rows of these days, or whether a promotion applied.",
    "tier": (
        "Let the source report the tier that served the call (`service_tier`), so that Tollhouse uses "
        "its price."
    ),
    "cache_ttl_1h": "Report the lifetime of cache writes: the provider's answer states it in `cache_creation`.",
    "long_context": "The model costs more for large inputs; list prices have tiers for them.",
}


def _price_change_cause_certainty_and_evidence(
    meters: Mapping[str, BilledRatioSeries],
    ratio_steps_by_meter: Mapping[str, list[tuple[int, Decimal]] | None],
) -> tuple[str, str, str]:
    changed = sorted(
        {
            meter_steps[1][0]
            for meter_steps in ratio_steps_by_meter.values()
            if meter_steps is not None and len(meter_steps) == 2
        }
    )
    price_texts = []
    for meter, days in meters.items():
        meter_steps = ratio_steps_by_meter[meter] or []
        since = meter_steps[-1][0] if len(meter_steps) == 2 else 0
        later = {day for day in days.worth if day >= since}
        if abs(days.billed_ratio(later) - _ONE) <= NOTHING and len(meter_steps) < 2:
            continue
        sold = sum(days.sold[day] for day in later)
        billed = price_per_million_tokens(sum(days.paid.get(day, 0) for day in later), sold)
        ours = price_per_million_tokens(sum(days.worth[day] for day in later), sold)
        if billed == ours:
            continue
        price_texts.append(f"{meter} ${billed} a million, ours ${ours}")
    when = f"from {day_text(changed[0])} on, " if changed else ""
    return "price_change", EXACT if changed else STRONG, f"{when}{'; '.join(price_texts)}"


def known_factor_cause_and_evidence(
    ratios: Mapping[str, Decimal], are_regions_known: bool, *, are_others_claimed: bool = False
) -> tuple[str, str, str] | None:
    """
    Return cause, certainty and evidence if a known factor between billed and our prices applies to all kinds
    of tokens, or None.

    `are_others_claimed`: other causes already explain the other kinds of tokens, so one kind is enough to
    show a tier's price.
    """
    factor = next(iter(ratios.values()))
    is_one = len(ratios) < 2 and WHOLE not in ratios
    if (is_one and not are_others_claimed) or not all(is_near(ratio, factor) for ratio in ratios.values()):
        return None
    for known, cause, description in _FACTORS:
        # If the ledger knows the regions, an earlier check has tried their factors.
        if is_near(factor, known) and not (cause == REGION and (are_regions_known or is_one)):
            sure = WEAK if cause == REGION or is_one else STRONG
            kinds = "every kind of token"
            if is_one:
                kinds = f"{next(iter(ratios))}, the only kind whose price no other claim explains,"
            return cause, sure, f"{kinds} was billed at {description}"
    if factor < 1 and not is_one:
        return "discount", STRONG, f"every kind of token was billed at {factor:.4f} of our price"
    return None


def alternative_causes_of_factor(cause: str, factor: Decimal) -> tuple[str, ...]:
    """
    Return further causes of a price factor. A discount near half the price may also be a tier at half the
    price with a further discount or a fee.
    """
    return ("tier",) if cause == "discount" and NEAR_HALF[0] <= factor <= NEAR_HALF[1] else ()


def long_context_surcharge_cause_and_evidence(ratios: Mapping[str, Decimal]) -> tuple[str, str, str] | None:
    """
    Return cause, certainty and evidence if large inputs cost 2 times as much for input and 1.5 times for
    output, or None.
    """
    if INPUT not in ratios or OUTPUT not in ratios:
        return None
    input_surcharge = ratios[INPUT] - 1
    output_surcharge = ratios[OUTPUT] - 1
    if not 0 < input_surcharge <= 1 or abs(output_surcharge * 2 - input_surcharge) > input_surcharge / 10:
        return None
    if CACHE_READ in ratios and abs(ratios[CACHE_READ] - 1 - input_surcharge) > input_surcharge / 2:
        return None
    description = (
        f"input at {ratios[INPUT]:.3f} and output at {ratios[OUTPUT]:.3f} of our price; large inputs "
        f"above a threshold cost 2 and 1.5 times as much, and they are {input_surcharge:.0%} of these tokens"
    )
    return "long_context", WEAK, description


def one_hour_cache_write_cause_and_evidence(ratios: Mapping[str, Decimal]) -> tuple[str, str, str] | None:
    """
    Return cause, certainty and evidence if only cache writes cost more, as if stored for an hour, or None.
    """
    raised_meters = {meter for meter, ratio in ratios.items() if abs(ratio - 1) > SAME}
    if (
        not raised_meters
        or not raised_meters <= _WRITES
        or not all(1 < ratios[meter] <= 1 + HOUR_WRITE + SAME for meter in raised_meters)
    ):
        return None
    ratio = max(ratios[meter] for meter in raised_meters)
    share = (ratio - 1) / HOUR_WRITE
    description = (
        f"only cache writes differ, at {ratio:.3f} of our price, as if {share:.0%} were stored for an hour"
    )
    return "cache_ttl_1h", WEAK, description


def is_near(ratio: Decimal, factor: Decimal, tolerance: Decimal = SAME) -> bool:
    return abs(ratio - factor) <= tolerance * factor
