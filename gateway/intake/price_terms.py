"""
Terms of contracts that decide the price of a single call: a discount, a tier's price, paid capacity, and a
tier that a fee pays. No I/O.

`gateway.intake.prices` describes the rules. Terms about sums of calls, such as a minimum, are not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from gateway.intake.rate_cards.card import TOKEN_PRICES, CardPrices, Price, day_ns
from gateway.intake.rates import NO_TIME, price_row_with_only_fees
from spool import providers
from spool.processing import STANDARD_TIER

DISCOUNT: Final = "discount"
TIER_PRICE: Final = "tier_price"
CAPACITY: Final = "capacity"
PRIORITY: Final = "priority"
PREPAID = (CAPACITY, PRIORITY)  # kinds of contract terms under which tokens cost nothing in addition
KINDS = (DISCOUNT, TIER_PRICE, *PREPAID)


class PriceTerm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A term of the contract named `contract`. `models` are names of models or deployments; a trailing `*`
    matches any ending. Without models or a tier, the term covers every model or tier of the provider.

    It applies from the day `since` until the day before `until`. `factor` multiplies list prices, for a
    discount, or the standard price, for a tier. A tier without a factor has the prices in `amounts`.
    """

    contract: str
    kind: str
    provider: str
    since: str
    until: str = ""
    models: tuple[str, ...] = ()
    tier: str = ""
    factor: Decimal | None = None
    amounts: CardPrices | None = None

    @property
    def start_ns(self) -> int:
        return day_ns(self.since)

    @property
    def end_ns(self) -> int:
        return day_ns(self.until) if self.until else 2 * NO_TIME

    def is_for_model(self, model: str) -> bool:
        return not self.models or any(is_pattern_match(pattern, model) for pattern in self.models)

    def covers_tier(self, mode: str) -> bool:
        return self.tier in ("", mode or STANDARD_TIER)

    def covers(self, model: str, mode: str) -> bool:
        return self.covers_tier(mode) and self.is_for_model(model)

    def overlaps(self, other: PriceTerm) -> bool:
        return (
            (self.kind, self.provider) == (other.kind, other.provider)
            and max(self.start_ns, other.start_ns) < min(self.end_ns, other.end_ns)
            and (not self.tier or not other.tier or self.tier == other.tier)
            and (not self.models or not other.models or _have_common_model(self.models, other.models))
        )


def is_pattern_match(pattern: str, name: str) -> bool:
    """Return whether a name matches. A trailing `*` matches any ending, regardless of case."""
    pattern, name = pattern.lower(), name.lower()
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _have_common_model(models: Sequence[str], other_models: Sequence[str]) -> bool:
    return any(
        is_pattern_match(one, other.rstrip("*")) or is_pattern_match(other, one.rstrip("*"))
        for one in models
        for other in other_models
    )


class CallPriceTerms(NamedTuple):
    """The contract terms that apply to a call, at most one of each kind."""

    discount: PriceTerm | None = None
    tier_price: PriceTerm | None = None
    capacity: PriceTerm | None = None
    priority: PriceTerm | None = None

    @property
    def prepaid_term(self) -> PriceTerm | None:
        """Return the term whose fee already pays for the tokens of the call, or None."""
        return self.capacity or self.priority

    @property
    def contract_names(self) -> str:
        used = (self.prepaid_term,) if self.prepaid_term else (self.tier_price, self.discount)
        return ", ".join(dict.fromkeys(term.contract for term in used if term is not None))


def covering_terms(
    terms: Sequence[PriceTerm], provider: str | None, models: Sequence[str], mode: str
) -> list[PriceTerm]:
    """
    Return the terms that cover a call, whatever their dates are. `models` are its model's names, the most
    exact first. For each kind of term, the first name with terms decides.
    """
    seller = providers.canonical_provider_name(provider) if provider else None
    found: list[PriceTerm] = []
    for kind in KINDS:
        of_kind = [term for term in terms if (term.kind, term.provider) == (kind, seller)]
        of_names = ([term for term in of_kind if term.covers(model, mode)] for model in models)
        found += next(filter(None, of_names), [])
    return found


def terms_in_force(terms: Sequence[PriceTerm], time: int) -> CallPriceTerms:
    return CallPriceTerms(**{term.kind: term for term in terms if term.start_ns <= time < term.end_ns})


def price_under_terms(
    terms: CallPriceTerms, row: Price | None, standard: Price | None, *, is_own: bool
) -> Price | None:
    """
    Return the prices of a call under a contract. `row` has its prices without the contract, and `standard`
    those of the standard tier. Prices that an operator has set (`is_own`) are final; only prepaid terms take
    precedence.
    """
    if terms.prepaid_term is not None:
        return price_row_with_only_fees(row or Price())
    if is_own:
        return row
    if terms.tier_price is not None:
        row = _tier_price(terms.tier_price, standard)
    if terms.discount is None or row is None or (terms.tier_price is not None and terms.tier_price.amounts):
        return row
    return scale_price(row, terms.discount.factor)


def _tier_price(term: PriceTerm, standard: Price | None) -> Price | None:
    if term.amounts is None:
        return None if standard is None else scale_price(standard, term.factor)
    stated = {name: price for name in TOKEN_PRICES if (price := getattr(term.amounts, name)) is not None}
    base = replace(standard or Price(), tiers=())
    return replace(base, **({"reasoning": None} if "output" in stated else {}), **stated)


def scale_price(row: Price, factor: Decimal | None) -> Price:
    if factor is None:
        return row
    tiers = tuple(replace(tier, **_scale_amounts(tier, factor)) for tier in row.tiers)
    return replace(row, tiers=tiers, **_scale_amounts(row, factor))


def _scale_amounts(card_prices: CardPrices, factor: Decimal) -> dict[str, object]:
    def multiply_price(price: Decimal | None) -> Decimal | None:
        return None if price is None else price * factor

    prices = {name: multiply_price(getattr(card_prices, name)) for name in TOKEN_PRICES}
    return {**prices, "meters": {name: multiply_price(price) for name, price in card_prices.meters.items()}}
