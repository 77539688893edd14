"""
Suggested prices: those of a bill as `[[prices.override]]` entries, if pasting them makes the model agree. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from gateway.bills.reconciliation.cells import billed_meter
from gateway.bills.reconciliation.claims import BillComparison, CauseClaim
from gateway.bills.reconciliation.limits import NOTHING
from gateway.bills.reconciliation.sides import (
    CACHE_READ,
    INPUT,
    OUTPUT,
    RATE,
    STANDARD,
    WRITE_1H,
    WRITE_5M,
    CountedUse,
    MeterPlace,
    Prices,
)
from gateway.bills.reconciliation.wording import day_text, price_per_million_tokens
from spool import money
from spool.processing import PROVISIONED
from spool.record import decimal_text

_PRICES = {
    INPUT: "input",
    OUTPUT: "output",
    CACHE_READ: "cache_read",
    WRITE_5M: "cache_write",
    WRITE_1H: "cache_write_1h",
}
_OF_PRICES = frozenset({"price_change", "discount", "reported_cost", "tier_price", "tier_unknown"})
_DIGITS = Context(prec=4)
_Kind = tuple[str, str]  # kind of usage: tier and meter


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledPriceOverride:
    """
    Billed prices as a `[[prices.override]]` entry, in dollars per million tokens. If `tier` is "", the entry
    names no tier.
    """

    provider: str
    model: str
    tier: str = ""
    since: str
    prices: Mapping[str, str]

    @property
    def toml(self) -> str:
        lines = ["[[prices.override]]", f'provider = "{self.provider}"', f'model = "{self.model}"']
        lines += [f'tier = "{self.tier}"'] if self.tier else []
        lines += [f'since = "{self.since}"'] if self.since else []
        return "\n".join([*lines, *(f'{name} = "{price}"' for name, price in self.prices.items())])


def suggest_overrides(
    provider: str,
    comparison: BillComparison,
    claimed: Sequence[CauseClaim],
    prices: Prices,
    spelled: Mapping[str, Collection[str]],
) -> list[BilledPriceOverride]:
    """
    Return entries with the billed prices behind claims about prices. `spelled` are the names of a model in
    the ledger.

    An entry for the standard tier is tried first, then one for each other tier, and then entries for all
    tiers. None is returned unless each amount of the model agrees with the entries' prices.
    """
    found = []
    for model in sorted({model for claim in claimed if claim.cause in _OF_PRICES for model in claim.models}):
        since = max(claim.since for claim in claimed if claim.cause in _OF_PRICES and model in claim.models)
        entries = next(_price_overrides_that_explain_bill(comparison, model, since, prices), None)
        for tier, named in sorted((entries or {}).items()):
            when = day_text(since) if since else ""
            found += [
                BilledPriceOverride(provider=provider, model=name, tier=tier, since=when, prices=named)
                for name in sorted(spelled.get(model, ()))
            ]
    return found


def _price_overrides_that_explain_bill(
    comparison: BillComparison, model: str, since_day: int, prices: Prices
) -> Iterator[dict[str, dict[str, str]]]:
    uses = [use for use in comparison.uses if use.model == model]
    # an override without a tier also applies to tiers without a list price
    tiers = sorted({use.tier for use in uses} - {PROVISIONED})
    listed_tiers = [tier for tier in tiers if (model, tier) not in comparison.split.unlisted]
    choices = [[STANDARD], *([tier] for tier in tiers if tier), listed_tiers, tiers]
    for chosen in choices:
        billed = _billed_and_listed_prices(comparison, model, uses, since_day, chosen, prices)
        is_new = any(price != listed for by_meter in billed.values() for price, listed in by_meter.values())
        if not is_new:
            continue
        entries = {
            tier: {meter: price for meter, (price, _) in by_meter.items()}
            for tier, by_meter in billed.items()
        }
        if _is_bill_explained_by_entries(comparison, model, uses, since_day, entries, prices):
            yield {
                tier: {_PRICES[meter]: price for meter, price in by_meter.items()}
                for tier, by_meter in entries.items()
            }


def _billed_and_listed_prices(
    comparison: BillComparison,
    model: str,
    uses: Sequence[CountedUse],
    since_day: int,
    tiers: Collection[str],
    prices: Prices,
) -> dict[str, dict[str, tuple[str, str]]]:
    """
    Return the billed and the listed price by tier and meter. A price difference is divided among the tokens
    of the chosen tiers in proportion to their value.
    """
    split = comparison.split
    worth: dict[tuple[MeterPlace, _Kind], int] = defaultdict(int)
    places: dict[MeterPlace, int] = defaultdict(int)
    listed: dict[_Kind, int] = {}
    for use in uses:
        if use.day < since_day or use.tier not in tiers:
            continue
        coarse = split.levels.money_cell(split.levels.token_cell(use))
        for meter, value in use.values.items():
            place = coarse, billed_meter(split, coarse, meter)
            worth[place, (use.tier, meter)] += value
            places[place] += value
            listed[use.tier, meter] = prices(model, use.tier, use.day, 0).get(meter, 0)
    rest: dict[_Kind, Fraction] = defaultdict(Fraction)
    whole: dict[_Kind, int] = defaultdict(int)
    for (place, kind), value in worth.items():
        if value:
            rest[kind] += Fraction(split.parts.get((RATE, *place), 0) * value, places[place])
            whole[kind] += value
    found: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for (tier, meter), price in listed.items():
        if whole[tier, meter]:
            change = rest[tier, meter] / whole[tier, meter]
            text = listed_text = price_per_million_tokens(price, 1)
            if abs(change) > NOTHING:
                billed = Decimal(price_per_million_tokens(round(price * (1 + change) * 10**6), 10**6))
                # amounts of a bill are rounded, and prices have few digits
                text = decimal_text(_DIGITS.plus(billed))
            found[tier][meter] = text, listed_text
    return found


def _is_bill_explained_by_entries(
    comparison: BillComparison,
    model: str,
    uses: Sequence[CountedUse],
    since_day: int,
    override_entries: Mapping[str, Mapping[str, str]],
    prices: Prices,
) -> bool:
    """
    Return whether all billed amounts of a model agree with the entries' prices. An entry replaces the prices
    for large inputs as well.
    """
    split = comparison.split
    values: dict[MeterPlace, int] = defaultdict(int)
    for use in uses:
        is_unlisted = (model, use.tier) in split.unlisted
        own = override_entries.get(use.tier, override_entries.get(STANDARD) if is_unlisted else None)
        coarse = split.levels.money_cell(split.levels.token_cell(use))
        for meter, tokens in use.tokens.items():
            value = use.values.get(meter, 0)
            if own is not None and use.day >= since_day:
                base = prices(model, use.tier, use.day, 0).get(meter, 0)
                price = money.text_to_units(own[meter]) // 10**6 if meter in own else base
                value = tokens * price
            values[coarse, billed_meter(split, coarse, meter)] += value
    differing = {split.levels.money_cell(cell) for cell, _ in split.extra}
    amounts = [entry[1:] for entry in comparison.price_difference_entries(model) if entry[1] not in differing]
    return bool(amounts) and all(
        comparison.is_negligible(place, split.paid[place] - values[place]) for place in amounts
    )
