"""Tokens without an amount on the bill: those of paid capacity, and a daily number of free tokens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction

from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import EXACT, WEAK, BillComparison, CauseClaim, ClaimedPortion
from gateway.bills.reconciliation.limits import LARGE_SHARE, LEAST_DAYS, SAME
from gateway.bills.reconciliation.sides import OTHER, RATE, STANDARD, MeterPlace
from gateway.bills.reconciliation.wording import format_dollars, join_names

_CAPACITY = frozenset({"throughput", "priority"})  # service tiers whose calls pay for capacity
_Served = tuple[str, str]  # a served model and its tier


def claim_commitment(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Yield claims that a difference is paid capacity: the bill charges capacity by lines for throughput, and no
    money for the tokens of the served model and tier. The amount of a claim is that of these lines minus what
    the tokens cost by the ledger.

    The cause is exact if on all days with such a line no token of the model and tier has money, and only one
    model may be served. Otherwise it is only likely.
    """
    lines = [
        entry for entry in comparison.remainder.entries_of_difference_part(OTHER) if entry[2] in _CAPACITY
    ]
    for name in sorted({cell.model for _, cell, _ in lines}):
        of_name = [entry for entry in lines if entry[1].model == name]
        days = {cell.day for _, cell, _ in of_name}
        unpaid = _unpaid_entries(comparison, days)
        served = [pair for pair in unpaid if pair[0] == name] or [*unpaid]
        if not served:
            continue
        entries = [entry for pair in served for entry in unpaid[pair]]
        is_whole = all(_is_all_unpaid(comparison, pair, days) for pair in served)
        is_named = {model for model, _ in served} == {name}
        fee = sum(comparison.remainder.amounts[entry] for entry in of_name)
        value = -sum(comparison.remainder.amounts[entry] for entry in entries)
        claim = comparison.remainder.claim_entries(
            "commitment",
            [*of_name, *entries],
            certainty=EXACT if is_whole and (is_named or len({model for model, _ in served}) == 1) else WEAK,
            evidence=(
                f"{format_dollars(fee)} were billed for capacity on {len(days):,} days, and nothing for tokens of "
                f"{join_names(sorted({model for model, _ in served}))}, which are worth {format_dollars(value)}"
            ),
            advice="Nothing is missing. The capacity pays for these tokens.",
        )
        if claim is not None:
            yield claim


def _unpaid_entries(comparison: BillComparison, days: set[int]) -> dict[_Served, list[DifferenceEntry]]:
    """
    Return the tokens with a billed amount of 0. A model and tier is left out if most of its value was billed
    at more than 0.
    """
    entries: dict[_Served, list[DifferenceEntry]] = defaultdict(list)
    worth, free = Counter[_Served](), Counter[_Served]()
    for (cell, meter), value in comparison.split.worth.items():
        if cell.day in days and value > 0 and (cell, meter) in comparison.split.paid:
            worth[cell.model, cell.tier] += value
            if not comparison.split.paid[cell, meter] and (RATE, cell, meter) in comparison.remainder.amounts:
                free[cell.model, cell.tier] += value
                entries[cell.model, cell.tier].append((RATE, cell, meter))
    return {pair: found for pair, found in entries.items() if free[pair] * 2 > worth[pair]}


def _is_all_unpaid(comparison: BillComparison, pair: _Served, days: set[int]) -> bool:
    return not any(
        amount
        for (cell, meter), amount in comparison.split.paid.items()
        if (cell.model, cell.tier) == pair and cell.day in days
    )


def claim_daily_free_tokens(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim free tokens: worth - paid = N * p for a kind of token of a model. `worth` is the value at our
    prices, p the list price, and N the same number on each day. On days with fewer than N tokens, nothing is
    paid.

    At least LEAST_DAYS days with more tokens must show the same N. The number of tokens must vary, because a
    discount has the same amounts otherwise.
    """
    split, remainder, prices = comparison.split, comparison.remainder, _standard_prices(comparison)
    for model in comparison.compared_models():
        by_meter: dict[str, dict[int, list[MeterPlace]]] = defaultdict(lambda: defaultdict(list))
        for _, cell, meter in comparison.price_difference_entries(model):
            by_meter[meter][cell.day].append((cell, meter))
        for meter, days in sorted(by_meter.items()):
            found = _free_tokens_per_day(comparison, prices[model, meter], days)
            if found is None:
                continue
            number, less = found
            portions: dict[DifferenceEntry, ClaimedPortion] = {
                (RATE, *place): ClaimedPortion(remainder.amounts[RATE, *place])
                for day in less
                for place in days[day]
                if (RATE, *place) in remainder.amounts
            }
            sold = sum(split.sold[place] for day in less for place in days[day])
            yield from comparison.claim_entries_with_price_differences(
                "free_tokens",
                [*portions],
                EXACT,
                f"{join_names([model])}: the first {number:,} tokens of {meter} of each day have no amount, on "
                f"{len(less):,} days with {sold:,} tokens{_contract_tokens_phrase(comparison, model, number)}",
                "Nothing is missing. The provider gives these tokens for free.",
                portions=portions,
            )


def _contract_tokens_phrase(comparison: BillComparison, model: str, number: int) -> str:
    stated = {
        each.contract: tokens
        for each in comparison.sums
        for term, tokens in each.free_tokens
        if term.is_for_model(model)
    }
    texts = [
        f"as the contract {name} states"
        if abs(tokens - number) <= SAME * tokens  # `number` comes from rounded amounts
        else f"but the contract {name} states {tokens:,}"
        for name, tokens in sorted(stated.items())
    ]
    return "".join(f", {text}" for text in texts)


def _free_tokens_per_day(
    comparison: BillComparison, prices: Mapping[int, int], days: dict[int, list[MeterPlace]]
) -> tuple[int, set[int]] | None:
    split, remainder = comparison.split, comparison.remainder
    free: dict[int, Fraction] = {}
    rests: dict[int, int] = {}
    slack = {day: sum(map(comparison.largest_rounding_error, places)) for day, places in days.items()}
    unpaid, worths = set[int](), set[int]()
    for day, places in days.items():
        price = prices.get(day, 0)
        rest = -sum(remainder.amounts.get((RATE, *place), 0) for place in places)
        worth = sum(split.worth[place] for place in places)
        if price <= 0 or rest < -slack[day]:
            return None
        rests[day] = rest
        if rest >= worth:
            unpaid.add(day)
        else:
            free[day] = Fraction(rest, price)
            worths.add(worth)
    if len(free) < LEAST_DAYS or len(worths) < LEAST_DAYS:
        return None
    number = round(sorted(free.values())[len(free) // 2])
    is_same = all(abs((tokens - number) * prices[day]) <= slack[day] for day, tokens in free.items())
    chance = sum(slack.values())
    is_same = is_same and chance <= LARGE_SHARE * sum(rests.values())
    fewer = all(sum(split.sold[place] for place in days[day]) <= number for day in unpaid)
    return (number, {*free, *unpaid}) if number and is_same and fewer else None


def _standard_prices(comparison: BillComparison) -> dict[tuple[str, str], dict[int, int]]:
    prices: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for (cell, meter), price in comparison.split.listed.items():
        if cell.tier == STANDARD and not cell.context:
            prices[cell.model, meter].setdefault(cell.day, price)
    return prices
