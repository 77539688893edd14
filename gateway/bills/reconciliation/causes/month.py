"""The test of each claim against the whole compared period. A claim that the period contradicts becomes a hint."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby, pairwise
from statistics import median

from gateway.bills.reconciliation.causes.contexts import cells_with_other_input, without_size
from gateway.bills.reconciliation.claims import OF_PRICES, TIER_NOT_GIVEN, WEAK, BillComparison, CauseClaim
from gateway.bills.reconciliation.limits import COARSEST, LARGE_SHARE, LEAST_DAYS, NOTHING, SAME
from gateway.bills.reconciliation.sides import DAY_S, OUTPUT, RATE, VOLUME, ComparisonCell, MeterPlace
from gateway.intake.rate_cards.names import model_family

MISSING = frozenset({"unreported_calls", "usage_missing", "output_missing"})
# causes for days with data on one side -> the cause if tokens only moved between days
ONE_SIDED = {"no_bill": "posted_late", "no_telemetry": "time_edge"}
# causes that concern a model or key name that only one side has
ONE_NAME = frozenset({"unreported_traffic", "other_account"})
_OF_AMOUNTS = OF_PRICES | {"cache_ttl_1h"}
_ONE_PRICE = frozenset({"price_change", "price_on_days", "discount", "tier"})
ANY_KEY = "(any key)"
_Kind = tuple[str, str, bool]  # kind of tokens: key, model, and whether they are output
_Rest = dict[str, Counter[int]]  # unexplained price differences by model and day
_Series = tuple[str, str, int]  # a time series: model, meter and day


def turn_contradicted_claims_into_hints(
    claims: Sequence[CauseClaim], comparison: BillComparison
) -> list[CauseClaim]:
    """
    Return the claims. Those that the compared period contradicts become hints.

    A claim about tokens becomes a hint in these cases:

    - Over the period, the tokens are not missing from the same key, model and kind, or not from all keys
      together.
    - They are missing only on days to which the bill may have added an earlier day: the first day, or a day
      after one without calls. Or calls are missing on fewer than LEAST_DAYS days, or only next to days
      without telemetry, because telemetry may have been silent for some hours.
    - Tokens of a key or model that only one side has are surplus under other keys or snapshots of the model,
      or lie only on days without any call or days that only exchange tokens. Or a billed model has other
      tokens counted under another name, or other snapshots of it differ.
    - A day that only one side has is next to a day with the opposite difference.

    A claim about a price becomes a hint in these cases:

    - The price does not explain the model's amounts, or only on fewer than LEAST_DAYS days, or the bill names
      another reason for them.
    - It is a price of some days, and most days lack the usual price, or the price may have changed within a
      billing period of several days or while rows were billed late.
    - The price may be that of a tier without its discount, or of large inputs without their surcharge.

    Any claim becomes a hint if rounding explains half of its amounts, or if opposite amounts remain in its
    cells. A claim that nothing was billed or counted must leave no amount there.
    """
    by_kind = Counter[_Kind]()
    by_day = Counter[int]()
    for (cell, meter), tokens in _unexplained_tokens(
        claims, comparison, excluded_causes={*MISSING, *ONE_SIDED}
    ):
        by_kind[cell.key, cell.model, meter == OUTPUT] += tokens
        by_day[cell.day] += tokens
    for (cell, meter), tokens in _unexplained_tokens(
        claims, comparison, excluded_causes={*MISSING, *ONE_NAME}
    ):
        by_kind[ANY_KEY, model_family(cell.model), meter == OUTPUT] += tokens
    exchanged = {
        day: ONE_SIDED[claim.cause]
        for claim in claims
        if claim.cause in ONE_SIDED and not claim.is_hint
        for day in _days_offset_by_neighboring_days(claim, comparison, by_day)
    }
    silent = _days_next_to_days_without_telemetry(claims, comparison)
    rest = _unexplained_price_differences_by_model(comparison)
    renamed = _models_under_other_names(claims, comparison)
    unusual = _models_without_usual_price(claims, comparison)
    results = [
        _turn_into_hint_if_contradicted(claim, comparison, by_kind, exchanged, silent, rest, renamed)
        for claim in claims
    ]
    results = [
        replace(claim, sure=WEAK)
        if claim.cause == "price_on_days" and not unusual.isdisjoint(claim.models)
        else claim
        for claim in results
    ]
    left = _unexplained_models(comparison)
    for _ in range(2):  # done twice, because a doubtful price makes the prices of other models doubtful
        doubtful = left | {
            model for claim in results if claim.is_hint and claim.cause in OF_PRICES for model in claim.models
        }
        results = [_add_fee_as_alternative_if_plausible(claim, comparison, doubtful) for claim in results]
    return results


def _models_under_other_names(claims: Iterable[CauseClaim], comparison: BillComparison) -> set[str]:
    snapshots = {
        model_family(cell.model)
        for cell, _ in comparison.split.extra
        if cell.model in _counted_models(comparison)
    }
    moved = {model for claim in claims if claim.cause == "other_model" for model in claim.models}
    return moved | {cell.model for cell in comparison.split.billed if model_family(cell.model) in snapshots}


def _models_without_usual_price(claims: Iterable[CauseClaim], comparison: BillComparison) -> set[str]:
    days: dict[str, set[int]] = defaultdict(set)
    for claim in claims:
        for model in claim.models if claim.cause == "price_on_days" else ():
            days[model].update(claim.days)
    return {model for model, of_model in days.items() if 2 * len(of_model) > len(comparison.days)}


def _counted_models(comparison: BillComparison) -> set[str]:
    return {cell.model for cell in comparison.split.counted}


def _add_fee_as_alternative_if_plausible(
    claim: CauseClaim, comparison: BillComparison, unexplained_models: set[str]
) -> CauseClaim:
    # A fee on every line also changes the prices of other models. So if those are unexplained as well, a fee
    # may be the cause.
    is_fee = (
        claim.cause == "price_change"
        and not _has_our_price_on_earlier_days(claim, comparison)
        and (not unexplained_models <= {*claim.models} or _is_same_factor_on_all_amounts(claim, comparison))
    )
    return replace(claim, beside=(*claim.beside, "fee")) if is_fee and not claim.is_hint else claim


def _has_our_price_on_earlier_days(claim: CauseClaim, comparison: BillComparison) -> bool:
    meters = {(cell.model, meter) for _, cell, meter in claim.parts}
    return any(
        cell.day < claim.since
        and (cell.model, meter) in meters
        and (cell, meter) in comparison.split.paid
        and comparison.is_negligible((cell, meter), comparison.split.parts.get((RATE, cell, meter), 0))
        for (cell, meter), worth in comparison.split.worth.items()
        if worth > 0
    )


def _unexplained_models(comparison: BillComparison) -> set[str]:
    places, left = Counter[str](), Counter[str]()
    for place, worth in comparison.split.worth.items():
        if worth > 0 and place in comparison.split.paid:
            entry = (RATE, *place)
            places[place[0].model] += 1
            left[place[0].model] += (
                entry in comparison.remainder.amounts and not comparison.is_within_rounding(entry)
            )
    return {model for model, count in places.items() if 2 * left[model] > count}


def _is_same_factor_on_all_amounts(claim: CauseClaim, comparison: BillComparison) -> bool:
    paid = {cell.model for (cell, _), amount in comparison.split.paid.items() if amount}
    models = {cell.model for (cell, _), worth in comparison.split.worth.items() if worth > 0}
    amounts, worths = Counter[str](), Counter[str]()
    for (part, cell, meter), portion in claim.parts.items():
        amounts[meter] += portion.amount if part == RATE else 0
        worths[meter] += comparison.split.worth[cell, meter] if part == RATE else 0
    factors = [Fraction(amounts[meter], worth) for meter, worth in worths.items() if worth]
    is_one = len(factors) > 1 and max(factors) - min(factors) <= Fraction(SAME)
    return is_one and paid <= {*claim.models} and not models <= paid


def _turn_into_hint_if_contradicted(
    claim: CauseClaim,
    comparison: BillComparison,
    unclaimed_tokens_by_kind: Counter[_Kind],
    cause_by_offset_day: Mapping[int, str],
    days_near_silence: set[int],
    unclaimed_by_model: _Rest,
    models_under_other_names: set[str],
) -> CauseClaim:
    if claim.is_hint:
        return claim
    beside = [
        *_alternative_causes_of_token_claim(
            claim, comparison, unclaimed_tokens_by_kind, days_near_silence, models_under_other_names
        ),
        *_alternative_causes_of_price_claim(claim, comparison),
    ]
    is_of_days = claim.cause in ONE_NAME and cause_by_offset_day.keys() >= {*claim.days}
    if claim.cause in MISSING or claim.cause in ONE_SIDED or is_of_days:
        beside += [cause for day, cause in cause_by_offset_day.items() if day in claim.days]
    if beside:
        return replace(claim, beside=(*claim.beside, *beside))
    is_doubtful = (
        _has_amounts_left(claim, comparison)
        or _has_unclaimed_price_differences_of_opposite_sign(claim, comparison)
        or _is_within_rounding(claim, comparison)
        or (
            claim.cause in _OF_AMOUNTS
            and (
                _has_large_unclaimed_price_differences(claim, unclaimed_by_model)
                or _has_few_days(claim, comparison)
            )
        )
        or (claim.cause in _ONE_PRICE and not _is_same_price_daily(claim, comparison))
    )
    return replace(claim, sure=WEAK) if is_doubtful else claim


def _alternative_causes_of_token_claim(
    claim: CauseClaim,
    comparison: BillComparison,
    unclaimed_tokens_by_kind: Counter[_Kind],
    days_near_silence: set[int],
    models_under_other_names: set[str],
) -> Iterator[str]:
    if claim.cause not in MISSING and claim.cause not in ONE_NAME:
        return
    own, of_any_key = Counter[_Kind](), Counter[_Kind]()
    for (cell, meter), tokens in _claimed_tokens(claim):
        own[cell.key, cell.model, meter == OUTPUT] += tokens
        of_any_key[ANY_KEY, model_family(cell.model), meter == OUTPUT] += tokens
    is_of_models = _counted_models(comparison).isdisjoint(claim.models)
    if claim.cause in MISSING and not _is_claim_confirmed_by_month_sums(own, unclaimed_tokens_by_kind):
        yield "time_edge"
    elif not _is_claim_confirmed_by_month_sums(of_any_key, unclaimed_tokens_by_kind):
        yield "other_model" if is_of_models else "keys_exchanged"
    elif (
        claim.cause == "unreported_traffic"
        and is_of_models
        and not models_under_other_names.isdisjoint(claim.models)
    ):
        yield "other_model"
    days = {cell.day for (cell, _), _ in _claimed_tokens(claim)}
    counted = {cell.day for cell, sums in comparison.split.counted.items() if sums.calls}
    if days and counted and days.isdisjoint(counted):
        yield "no_telemetry"
    if not days or claim.cause in ONE_NAME:
        return
    if days <= _days_after_empty_day(comparison):
        yield "posted_late"
    if claim.cause == "unreported_calls" and (days <= days_near_silence or comparison.are_few_days(days)):
        yield "no_telemetry"


def _is_claim_confirmed_by_month_sums(
    claimed_by_kind: Mapping[_Kind, int], month_difference_by_kind: Counter[_Kind]
) -> bool:
    return all(
        2 * (month_difference_by_kind[kind] if tokens > 0 else -month_difference_by_kind[kind]) >= abs(tokens)
        for kind, tokens in claimed_by_kind.items()
        if tokens
    )


def _alternative_causes_of_price_claim(claim: CauseClaim, comparison: BillComparison) -> Iterator[str]:
    if claim.cause in _ONE_PRICE and any(
        (cell.model, cell.tier) in comparison.split.unlisted for cell in claim.by_cell
    ):
        yield "tier_price"
    if claim.cause in OF_PRICES and _may_lack_output(claim, comparison):
        yield "output_missing"
    if claim.cause == "price_on_days" and _may_be_repeated_rows(claim, comparison):
        yield "billed_twice"
    if claim.cause == "price_on_days" and not {
        *_days_just_before_gap_in_bill(comparison),
        *comparison.late_days,
    }.isdisjoint(claim.days):
        yield "price_change"
    if claim.cause in _ONE_PRICE and _is_amount_the_discount(claim, comparison):
        yield TIER_NOT_GIVEN
    if claim.cause in _ONE_PRICE and _is_amount_the_large_input_surcharge(claim, comparison):
        yield "premium_absent"


def _is_amount_the_discount(claim: CauseClaim, comparison: BillComparison) -> bool:
    places = [(cell, meter) for part, cell, meter in claim.parts if part == RATE]
    full = sum(comparison.split.full[place] for place in places)
    worth = sum(comparison.split.worth[place] for place in places)
    return full > worth and abs(full - worth - claim.amount) <= int(full * SAME)


def _is_amount_the_large_input_surcharge(claim: CauseClaim, comparison: BillComparison) -> bool:
    rates = {
        (cell, meter): portion.amount for (part, cell, meter), portion in claim.parts.items() if part == RATE
    }
    premium = sum(comparison.split.premium[place] for place in rates)
    unequal = cells_with_other_input(comparison) if premium > 0 else ()
    return premium > 0 and all(
        comparison.is_negligible(place, amount + comparison.split.premium[place])
        for place, amount in rates.items()
        if comparison.split.premium[place] or without_size(place[0]) not in unequal
    )


def _days_next_to_days_without_telemetry(
    claims: Sequence[CauseClaim], comparison: BillComparison
) -> set[int]:
    silent = {day for claim in claims if claim.cause == "no_telemetry" for day in claim.days}
    return {
        day
        for pair in pairwise(comparison.days)
        for day, other in (pair, pair[::-1])
        if other in silent and day not in silent
    }


def _unexplained_price_differences_by_model(comparison: BillComparison) -> _Rest:
    rest: _Rest = defaultdict(Counter)
    for entry, amount in comparison.remainder.amounts.items():
        if entry[0] == RATE and not comparison.is_within_rounding(entry):
            rest[entry[1].model][entry[1].day] += abs(amount)
    return rest


def _has_large_unclaimed_price_differences(claim: CauseClaim, unclaimed_by_model: _Rest) -> bool:
    """
    Return whether the model has unclaimed price differences that are large compared with the claimed ones.

    For a claim about regions, only its days count, because other days may have unknown regions.
    """
    taken = Counter[str]()
    for (part, cell, _), portion in claim.parts.items():
        taken[cell.model] += abs(portion.amount) if part == RATE else 0
    for model, amount in taken.items():
        days = claim.days if claim.cause == "region" else unclaimed_by_model[model].keys()
        if amount and sum(unclaimed_by_model[model][day] for day in days) > LARGE_SHARE * amount:
            return True
    return False


def _may_lack_output(claim: CauseClaim, comparison: BillComparison) -> bool:
    """
    Return whether output that the ledger lacks may explain a claimed price of output, because no bill states
    tokens for the days of the claim.
    """
    places = [(cell.day, meter) for part, cell, meter in claim.parts if part == RATE]
    return {meter for _, meter in places} == {OUTPUT} and comparison.split.metered.isdisjoint(
        day for day, _ in places
    )


def _may_be_repeated_rows(claim: CauseClaim, comparison: BillComparison) -> bool:
    """
    Return whether the bill may repeat rows: the claimed days have no billed tokens, and the billed amounts
    are a multiple of the value of the counted tokens.
    """
    if not comparison.split.metered.isdisjoint(claim.days):
        return False
    worth = sum(comparison.split.worth[cell, meter] for part, cell, meter in claim.parts if part == RATE)
    times = round(claim.amount / worth) if worth else 0
    return times > 0 and abs(claim.amount - times * worth) <= int(worth * SAME)


def _has_unclaimed_price_differences_of_opposite_sign(claim: CauseClaim, comparison: BillComparison) -> bool:
    # compute the difference that would remain if the bill had the tokens but not their money
    coarse = comparison.split.levels.money_cell
    claimed, left = Counter[ComparisonCell](), Counter[ComparisonCell]()
    for (part, cell, _), portion in claim.parts.items():
        claimed[_reduce_to_day_and_model(coarse(cell))] += portion.amount if part == VOLUME else 0
    for (part, cell, _), amount in comparison.remainder.amounts.items():
        left[_reduce_to_day_and_model(cell)] += amount if part == RATE else 0
    opposite = sum(
        min(abs(amount), abs(left[cell])) for cell, amount in claimed.items() if amount * left[cell] < 0
    )
    return bool(opposite) and 2 * opposite >= sum(map(abs, claimed.values()))


def _is_within_rounding(claim: CauseClaim, comparison: BillComparison) -> bool:
    # amounts of less than twice the rounding of their lines fit any cause
    if claim.cause == "rounding" or {part for part, _, _ in claim.parts} != {RATE}:
        return False
    lines = comparison.split.lines
    chance = sum(
        comparison.precision.get(cell.day, 0) * max(1, lines.get((cell, meter), 0))
        for _, cell, meter in claim.parts
    )
    return 2 * chance > sum(abs(portion.amount) for portion in claim.parts.values())


def _reduce_to_day_and_model(cell: ComparisonCell) -> ComparisonCell:
    return ComparisonCell(cell.day, model=cell.model)


def _has_few_days(claim: CauseClaim, comparison: BillComparison) -> bool:
    # with so few days, any price would fit
    models = {cell.model for part, cell, _ in claim.parts if part == RATE}
    days = {
        cell.day for (cell, _), worth in comparison.split.worth.items() if worth > 0 and cell.model in models
    }
    return bool(models) and len(days) < LEAST_DAYS


def _days_just_before_gap_in_bill(comparison: BillComparison) -> set[int]:
    """Return the days before a gap in the bill, on which it may state the calls of the missing days."""
    return {day for day, after in pairwise(comparison.days) if after - day > DAY_S}


def _is_same_price_daily(claim: CauseClaim, comparison: BillComparison) -> bool:
    paid, worth, slack = Counter[_Series](), Counter[_Series](), Counter[_Series]()
    for (part, cell, meter), portion in claim.parts.items():
        if part == RATE and cell.day >= claim.since:
            series = cell.model, meter, cell.day
            paid[series] += portion.amount
            worth[series] += comparison.split.worth[cell, meter]
            slack[series] += comparison.largest_rounding_error((cell, meter))
    whole_paid, whole_worth = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for (model, meter, day), amount in paid.items():
        whole_paid[model, meter] += amount
        whole_worth[model, meter] += worth[model, meter, day]
    for (model, meter, day), amount in paid.items():
        value, whole = worth[model, meter, day], whole_worth[model, meter]
        apart = abs(amount * whole - whole_paid[model, meter] * value)
        allowed: int = max(slack[model, meter, day], int(value * NOTHING))
        if apart > allowed * whole:
            return False
    return True


def _days_after_empty_day(comparison: BillComparison) -> set[int]:
    """
    Return the days after a day without calls on either side, to which the bill may have added an earlier day.
    """
    known = {cell.day for cell, _ in comparison.split.values}
    return (
        {day for before, day in pairwise((0, *comparison.days)) if before not in known}
        if len(known) > 1
        else set()
    )


def _claimed_tokens(claim: CauseClaim) -> Iterator[tuple[MeterPlace, int]]:
    for (part, cell, meter), portion in claim.parts.items():
        if part == VOLUME:
            yield (cell, meter), portion.tokens


def _unexplained_tokens(
    claims: Sequence[CauseClaim], comparison: BillComparison, excluded_causes: Collection[str]
) -> Iterator[tuple[MeterPlace, int]]:
    yield from comparison.split.extra.items()
    for claim in claims:
        if not claim.is_hint and claim.cause not in excluded_causes:
            for place, tokens in _claimed_tokens(claim):
                yield place, -tokens


def _days_offset_by_neighboring_days(
    claim: CauseClaim, comparison: BillComparison, tokens_by_day: Counter[int]
) -> set[int]:
    """
    Return claimed days in sequence next to a day that offsets at least half of their difference, and that
    day.

    Differences are measured from the median day.
    """
    usual = median(tokens_by_day[day] for day in comparison.days)
    found = set[int]()
    for run in _runs_of_days(claim.days, comparison.days):
        first, last = comparison.days.index(run[0]), comparison.days.index(run[-1])
        whole = sum(tokens_by_day[day] - usual for day in run)
        for neighbor in (*comparison.days[max(first - 1, 0) : first], *comparison.days[last + 1 : last + 2]):
            other = tokens_by_day[neighbor] - usual
            if whole * other < 0 and 2 * abs(other) >= abs(whole):
                found |= {*run, neighbor}
    return found


def _runs_of_days(days: Collection[int], all_days: Sequence[int]) -> Iterator[list[int]]:
    for is_chosen, run in groupby(all_days, key=lambda day: day in days):
        if is_chosen:
            yield list(run)


def _has_amounts_left(claim: CauseClaim, comparison: BillComparison) -> bool:
    if any(claim.by_cell.values()) or not claim.is_of_tokens:
        return False
    coarse = comparison.split.levels.money_cell
    cells = {coarse(cell) for cell in claim.by_cell}
    left = sum(
        abs(amount)
        for entry, amount in comparison.remainder.amounts.items()
        if coarse(entry[1]) in cells and not (entry[0] == RATE and comparison.is_within_rounding(entry))
    )
    least: int = COARSEST
    return left >= least
