"""
Tokens that the bill has under another tier than the ledger, or input that both sides divide differently into
cached and uncached tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.bills.reconciliation.causes.shifted_days import find_shift
from gateway.bills.reconciliation.causes.tiers import fit_unlisted_tier
from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import (
    EXACT,
    KINDS,
    OTHERS,
    TIER_NOT_GIVEN,
    WEAK,
    BillComparison,
    CauseClaim,
    ClaimedPortion,
)
from gateway.bills.reconciliation.limits import ALIKE, GAP, LARGE_SHARE, LASTING_DAYS, NEARLY_ALL, QUARTER
from gateway.bills.reconciliation.sides import (
    INPUT_METERS,
    METERS,
    STANDARD,
    VOLUME,
    WRITE_1H,
    WRITE_5M,
    ComparisonCell,
    MeterPlace,
)
from gateway.bills.reconciliation.wording import join_names

CLAIM_IT = (
    "Claim the difference from the provider: `tollhouse reconcile claim` writes the text and the table."
)
_MORE = "; other tokens are missing or surplus there as well"
_LARGE = (
    "; kinds of their input differ as well, and it is unknown which of them are large inputs with a "
    "higher price"
)


@dataclass(frozen=True, slots=True)
class _OffsettingTokenCells:
    """
    Cells of one day that exchange tokens: some have too many, others too few.

    `gains` are the tiers or kinds of token of which the bill has too many. `net_share` is the net difference
    as a share of the billed tokens. `is_one_way` means that each kind of token agrees in sum, and all kinds
    move from the same tiers to the same tiers.
    """

    places: list[MeterPlace]
    net_share: float
    gains: frozenset[str]
    is_one_way: bool = True

    @property
    def is_balanced(self) -> bool:
        return self.net_share <= GAP

    @property
    def is_exact(self) -> bool:
        return not self.net_share and self.is_one_way


def claim_tokens_billed_in_other_tier(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim tokens whose tiers differ while their sum over the tiers of a day, key and model agrees. Moved
    tokens are valued at the ratio of list prices.

    If the ledger has a named tier and the bill the standard tier at a higher price, the provider did not give
    the tier. If the bill has another named tier, either side may be wrong. Otherwise, the reports lack the
    tier.
    """
    exchanges = _token_exchanges_between_tiers(comparison)
    not_given = {
        group: exchange
        for group, exchange in exchanges.items()
        if _is_cheaper_tier_billed_as_standard(comparison, exchange)
    }
    left = {group: exchange for group, exchange in exchanges.items() if group not in not_given}
    named_tiers = {
        group: exchange
        for group, exchange in left.items()
        if _has_counted_surplus_outside_standard_tier(comparison, exchange)
    }
    unknown = {group: exchange for group, exchange in left.items() if group not in named_tiers}
    yield from _claim_exchanges_between_tiers(comparison, TIER_NOT_GIVEN, not_given, CLAIM_IT)
    advice = "Let the source report the tier that served the call: `service_tier`, or `processing` = `batch`."
    yield from _claim_exchanges_between_tiers(comparison, "tier_unknown", unknown, advice)
    yield from _claim_exchanges_between_tiers(
        comparison, "tier_unknown", named_tiers, advice, (TIER_NOT_GIVEN,)
    )


def _is_cheaper_tier_billed_as_standard(
    comparison: BillComparison, offsetting_cells: _OffsettingTokenCells
) -> bool:
    extra, listed = comparison.remainder.extra, comparison.split.listed
    return offsetting_cells.gains == {STANDARD} and all(
        listed.get((cell._replace(tier=STANDARD), meter), 0) > listed.get((cell, meter), 0)
        for cell, meter in offsetting_cells.places
        if cell.tier != STANDARD and extra[cell, meter] < 0
    )


def _has_counted_surplus_outside_standard_tier(
    comparison: BillComparison, offsetting_cells: _OffsettingTokenCells
) -> bool:
    return any(
        cell.tier != STANDARD and comparison.remainder.extra[cell, meter] < 0
        for cell, meter in offsetting_cells.places
    )


def _token_exchanges_between_tiers(comparison: BillComparison) -> dict[ComparisonCell, _OffsettingTokenCells]:
    groups: dict[ComparisonCell, list[MeterPlace]] = defaultdict(list)
    for cell, meter in comparison.remainder.extra:
        groups[cell._replace(tier="")].append((cell, meter))
    tokens: dict[ComparisonCell, int] = defaultdict(int)
    for cell, sums in comparison.split.billed.items():
        tokens[cell._replace(tier="")] += sum(sums.tokens.values())
    exchanges: dict[ComparisonCell, _OffsettingTokenCells] = {}
    # if tokens moved to other days, service tiers may differ by chance
    is_shifted = find_shift(comparison) is not None
    for group, places in groups.items():
        of_tiers: dict[str, int] = defaultdict(int)
        for cell_meter in places:
            of_tiers[cell_meter[0].tier] += comparison.remainder.extra[cell_meter]
        exchanged = _count_offsetting_tokens(of_tiers.values())
        difference = abs(sum(of_tiers.values()))
        least = LARGE_SHARE if is_shifted else ALIKE
        if (exchanged and not difference) or (
            exchanged * 2 > least * tokens[group] and exchanged * QUARTER > difference
        ):
            gains = frozenset(tier for tier, extra in of_tiers.items() if extra > 0)
            net_share = difference / max(tokens[group], 1)
            exchanges[group] = _OffsettingTokenCells(
                places, net_share, gains, _is_exchange_one_way(comparison, places, gains)
            )
    return _drop_chance_exchanges(exchanges, len(comparison.days), keeps_exact_exchanges=not is_shifted)


def _is_exchange_one_way(
    comparison: BillComparison, places: Iterable[MeterPlace], gains: Collection[str]
) -> bool:
    net: dict[str, int] = defaultdict(int)
    for cell, meter in places:
        extra = comparison.remainder.extra[cell, meter]
        net[meter] += extra
        if (extra > 0) is not (cell.tier in gains):
            return False
    return not any(net.values())


def _claim_exchanges_between_tiers(
    comparison: BillComparison,
    cause: str,
    exchanges: Mapping[ComparisonCell, _OffsettingTokenCells],
    advice: str,
    alternative_causes: Sequence[str] = (),
) -> Iterator[CauseClaim]:
    portions: dict[DifferenceEntry, ClaimedPortion] = {}
    is_mixed = False  # whether calls with large inputs changed their tier or kind as well
    for group, exchange in exchanges.items():
        comparison.remainder.unreported_tiers.add((group.key, group.model))
        if exchange.is_balanced:
            shared = _portions_due_to_other_tier(comparison, exchange.places)
            is_mixed = is_mixed or (bool(shared) and group.model in comparison.split.varying)
            portions |= shared
        else:
            is_mixed = is_mixed or group.model in comparison.split.varying
            for meter in {meter for _, meter in exchange.places}:
                portions |= _portions_of_offsetting_tokens(
                    comparison, [cell_meter for cell_meter in exchange.places if cell_meter[1] == meter]
                )
    tiers = {tier or "standard" for exchange in exchanges.values() for tier in exchange.gains}
    entries: list[DifferenceEntry] = [
        (VOLUME, *cell_meter) for exchange in exchanges.values() for cell_meter in exchange.places
    ]
    unlisted = _price_portions_of_unlisted_tiers(comparison, exchanges)
    claim = comparison.remainder.claim_entries(
        cause,
        comparison.remainder.with_price_differences(entries) if is_mixed else [*entries, *unlisted],
        certainty=EXACT if all(exchange.is_exact for exchange in exchanges.values()) else WEAK,
        evidence=f"the bill has these tokens under {join_names(sorted(tiers))}, Tollhouse under another tier"
        + ("" if all(exchange.is_balanced for exchange in exchanges.values()) else _MORE)
        + (_LARGE if is_mixed else ""),
        advice=advice,
        are_prices_known=bool(unlisted) and not is_mixed,
        portions={**portions, **({} if is_mixed else unlisted)},
        alternative_causes=[
            *alternative_causes,
            *([] if all(exchange.is_balanced for exchange in exchanges.values()) else [OTHERS]),
            *([KINDS] if is_mixed else []),
        ],
    )
    if claim is not None:
        yield claim


def _price_portions_of_unlisted_tiers(
    comparison: BillComparison, exchanges: Mapping[ComparisonCell, _OffsettingTokenCells]
) -> dict[DifferenceEntry, ClaimedPortion]:
    if not all(exchange.is_exact for exchange in exchanges.values()):
        return {}
    pairs = {(group.model, tier) for group, exchange in exchanges.items() for tier in exchange.gains}
    fits = [
        fit_unlisted_tier(comparison, model, tier)
        for model, tier in sorted(pairs & comparison.split.unlisted)
    ]
    return {entry: portion for fit in fits if fit is not None for entry, portion in fit[1].items()}


def _drop_chance_exchanges(
    exchanges: Mapping[ComparisonCell, _OffsettingTokenCells],
    days: int,
    *,
    keeps_exact_exchanges: bool = True,
) -> dict[ComparisonCell, _OffsettingTokenCells]:
    """
    Drop exchanges of tokens that may be chance. An exchange stays if the key and model have exchanges on many
    days and nearly all of them go in its direction. With `keeps_exact_exchanges`, exact exchanges always
    stay.
    """
    gains: dict[tuple[str, str], list[frozenset[str]]] = defaultdict(list)
    for group, exchange in exchanges.items():
        gains[group.key, group.model].append(exchange.gains)
    common = {
        key_model: max(set(gains_seen), key=gains_seen.count) for key_model, gains_seen in gains.items()
    }
    return {
        group: exchange
        for group, exchange in exchanges.items()
        if (exchange.is_exact and keeps_exact_exchanges)
        or (
            exchange.gains == (usual := common[group.key, group.model])
            and len(gains[group.key, group.model]) >= max(LASTING_DAYS, days // QUARTER)
            and gains[group.key, group.model].count(usual) >= NEARLY_ALL * len(gains[group.key, group.model])
        )
    }


def _count_offsetting_tokens(token_differences: Iterable[int]) -> int:
    token_differences = list(token_differences)
    return min(
        sum(extra for extra in token_differences if extra > 0),
        -sum(extra for extra in token_differences if extra < 0),
    )


def _portions_of_offsetting_tokens(
    comparison: BillComparison, meter_places: list[MeterPlace]
) -> dict[DifferenceEntry, ClaimedPortion]:
    extras = {cell_meter: comparison.remainder.extra[cell_meter] for cell_meter in meter_places}
    surplus = sum(extra for extra in extras.values() if extra > 0)
    fewer = -sum(extra for extra in extras.values() if extra < 0)
    exchanged = min(surplus, fewer)
    return {
        (entry := (VOLUME, *cell_meter)): comparison.remainder.portion_of_entry(
            entry, Fraction(exchanged, surplus if extra > 0 else fewer)
        )
        for cell_meter, extra in extras.items()
        if extra
    }


def _portions_due_to_other_tier(
    comparison: BillComparison, meter_places: list[MeterPlace]
) -> dict[DifferenceEntry, ClaimedPortion]:
    """
    Return the part of each token difference that is due to another tier on the bill.

    The rest is the net difference of each kind of input, divided in proportion to the ledger's surplus in
    each tier. Return nothing if the net differences are nearly 0.
    """
    extra = comparison.remainder.extra
    of_kinds: dict[str, int] = defaultdict(int)
    for cell_meter in meter_places:
        of_kinds[cell_meter[1]] += extra[cell_meter]
    lacking: dict[str, int] = defaultdict(int)
    for cell, meter in meter_places:
        if of_kinds[meter] < 0 and extra[cell, meter] < 0:
            lacking[cell.tier] -= extra[cell, meter]
    whole = sum(lacking.values())
    size = sum(abs(extra[cell_meter]) for cell_meter in meter_places)
    if not whole or sum(map(abs, of_kinds.values())) <= GAP * size:
        return {}
    return {
        (entry := (VOLUME, cell, meter)): comparison.remainder.portion_of_entry(
            entry, 1 - Fraction(of_kinds[meter] * lacking[cell.tier], whole * extra[cell, meter])
        )
        for cell, meter in meter_places
    }


def claim_different_division_into_cached_tokens(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim input that agrees in total while its cached and uncached parts differ. If only cache writes differ,
    the claimed cause is how long the cache keeps them.
    """
    places_by_cause: dict[str, list[MeterPlace]] = {"cache_split": [], "cache_ttl_1h": []}
    groups: dict[ComparisonCell, list[str]] = defaultdict(list)
    for cell, meter in comparison.remainder.extra:
        if meter in INPUT_METERS:
            groups[cell].append(meter)
    portions: dict[DifferenceEntry, ClaimedPortion] = {}
    exchanges: dict[ComparisonCell, _OffsettingTokenCells] = {}
    unbilled_kinds = _surplus_meter_by_model_and_unbilled_meter(comparison)
    whole = dict[DifferenceEntry, ClaimedPortion]()
    # if tokens moved to other days, token kinds may differ by chance
    is_shifted = find_shift(comparison) is not None
    for cell, meters in groups.items():
        billed_input = sum(
            tokens for meter, tokens in comparison.split.billed[cell].tokens.items() if meter != METERS[-1]
        )
        places = [(cell, meter) for meter in meters]
        extras = [comparison.remainder.extra[cell_meter] for cell_meter in places]
        difference_share = abs(sum(extras)) / max(billed_input, 1)
        is_mixed = difference_share > GAP or (difference_share > 0 and is_shifted)
        if is_mixed and (moved_portions := _unbilled_kind_portions(comparison, cell, unbilled_kinds)):
            whole |= moved_portions
        elif (
            not (difference_share and is_shifted)
            and _count_offsetting_tokens(extras) * 2
            > (LARGE_SHARE if is_mixed else GAP * bool(difference_share)) * billed_input
        ):
            gains = frozenset(meter for meter, extra in zip(meters, extras, strict=True) if extra > 0)
            exchanges[cell] = _OffsettingTokenCells(places, difference_share, gains)
    exchanges = _drop_chance_exchanges(exchanges, len(comparison.days), keeps_exact_exchanges=not is_shifted)
    is_exact = all(exchange.is_exact for exchange in exchanges.values()) and not whole
    places_by_cause["cache_split"] += [(cell, meter) for _, cell, meter in whole]
    portions |= whole
    for exchange in exchanges.values():
        is_of_writes = {meter for _, meter in exchange.places} <= {WRITE_5M, WRITE_1H}
        places_by_cause["cache_ttl_1h" if is_of_writes else "cache_split"] += exchange.places
        if not exchange.is_balanced:
            portions |= _portions_of_offsetting_tokens(comparison, exchange.places)
    for cause, places in places_by_cause.items():
        lacking = sorted(
            {meter for cell, meter in places if comparison.remainder.extra.get((cell, meter), 0) > 0}
        )
        advice = (
            "Report the lifetime of cache writes: the provider's answer states it in `cache_creation`."
            if cause == "cache_ttl_1h"
            else "Check with `tollhouse explain --why` how the source's cache counts are read."
        )
        claim = comparison.remainder.claim_entries(
            cause,
            [(VOLUME, cell, meter) for cell, meter in places],
            certainty=EXACT if is_exact else WEAK,
            evidence=(
                f"{'the input agrees in total; ' if is_exact else ''}Tollhouse has too few tokens under "
                f"{join_names(lacking)}, and as many too many under other kinds"
            )
            + ("" if is_exact else _MORE),
            advice=advice,
            portions=portions,
            alternative_causes=() if is_exact else [OTHERS],
        )
        if claim is not None:
            yield claim


def _surplus_meter_by_model_and_unbilled_meter(comparison: BillComparison) -> dict[tuple[str, str], str]:
    """
    Map kinds of input that are never billed to the kind with the most tokens that only the bill has, if these
    are about as many.
    """
    split = comparison.split
    billed_tokens: dict[tuple[str, str], int] = defaultdict(int)
    extra: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (cell, meter), tokens in comparison.remainder.extra.items():
        if meter in INPUT_METERS:
            extra[cell.model][meter] += tokens
    for cell, meter in split.values:
        billed_tokens[cell.model, meter] += comparison.remainder.billed_value_and_tokens(
            (VOLUME, cell, meter)
        ).tokens
    target_of = {}
    for model, extra_by_meter in extra.items():
        target = max(extra_by_meter, key=lambda meter: extra_by_meter[meter])
        for meter, tokens in extra_by_meter.items():
            if (
                tokens < 0
                and not billed_tokens[model, meter]
                and extra_by_meter[target] >= NEARLY_ALL * -tokens
            ):
                target_of[model, meter] = target
    return target_of


def _unbilled_kind_portions(
    comparison: BillComparison, cell: ComparisonCell, unbilled_kinds: Mapping[tuple[str, str], str]
) -> dict[DifferenceEntry, ClaimedPortion]:
    portions: dict[DifferenceEntry, ClaimedPortion] = {}
    for (model, meter), target in unbilled_kinds.items():
        tokens = -comparison.remainder.extra.get((cell, meter), 0)
        listed = comparison.split.listed.get((cell, meter), 0)
        if model != cell.model or tokens <= 0 or not listed:
            continue
        entry = (VOLUME, cell, meter)
        target_entry = (VOLUME, cell, target)
        share = Fraction(comparison.split.listed.get((cell, target), 0), listed)
        before = portions.get(target_entry, ClaimedPortion(0))
        gained_amount = round(comparison.split.values[cell, meter] * share)
        portions[entry] = ClaimedPortion(comparison.remainder.amounts.get(entry, 0), -tokens)
        portions[target_entry] = ClaimedPortion(before.amount + gained_amount, before.tokens + tokens)
    return portions
