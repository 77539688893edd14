"""
All prices that apply to calls of a model, for display to people.

The prices come from the same quotes as estimates, so they include the operator's own prices and the rule for a tier
without a price.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, NamedTuple

from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards import names
from gateway.intake.rate_cards.card import DAY_NS, Model, ModelNameCondition
from gateway.intake.rates import NO_TIME, Quote
from gateway.intake.unit_prices import UNITS, PartRate
from spool import providers
from spool.processing import MODES, PROVISIONED, STANDARD
from spool.record import NS, decimal_text

_SUGGESTIONS: Final = 5
_MOST_SPANS: Final = 20
_STANDARD_NAME: Final = "standard"


class PriceRow(NamedTuple):
    """
    A price of one unit. `above` is the number of input tokens above which it applies to the whole call.
    `since` and `until` are days, or "" without a limit.
    """

    tier: str
    above: int
    unit: str
    price: str
    per: str
    since: str
    until: str


@dataclass(frozen=True, kw_only=True)
class ModelPrices:
    """
    The prices of a model. `at_standard` are the tiers that have no price, so standard prices apply. The model
    has the names in `names`, and those that match the conditions in `patterns`.
    """

    provider: str
    model: str
    listed_by: str
    names: Sequence[str]
    patterns: Sequence[str]
    has_own_prices: bool
    at_standard: Sequence[str]
    rows: Sequence[PriceRow]


def model_prices_by_seller(
    price_book: PriceBook, model: str, provider: str | None, time: int
) -> list[ModelPrices]:
    """
    Return a model's prices. Without a provider, every provider that lists the model is included, its maker
    first.
    """
    sellers = (
        [providers.provider_name_in_rate_cards(provider)]
        if provider
        else _sellers_listing_model(price_book, model)
    )
    return [
        found
        for seller in sellers
        if (found := _model_prices_at(price_book, model, seller, time)) is not None
    ]


def similar_models(price_book: PriceBook, model: str) -> list[str]:
    known = {
        name.rpartition("/")[2]
        for seller in price_book.card.providers.values()
        for listed in seller.models
        for name in (listed.id.lower(), *listed.match.equals)
    }
    return difflib.get_close_matches(model.lower().rpartition("/")[2], sorted(known), _SUGGESTIONS, 0.6)


def _sellers_listing_model(price_book: PriceBook, model: str) -> list[str]:
    maker = next(
        (
            names.maker_name_in_price_lists(spelling)
            for spelling in names.possible_spellings(model)
            if names.maker_name_in_price_lists(spelling)
        ),
        None,
    )
    own = [
        seller
        for seller in price_book.card.providers
        if price_book.find_seller_and_model(seller, model)[0] == seller
    ]
    own.sort(key=lambda seller: (seller != maker, seller))
    if own:
        return own
    seller, _ = price_book.find_seller_and_model(None, model)
    return [seller or ""]  # "" stands for any provider; only the operator's own prices may apply to it


def _model_prices_at(price_book: PriceBook, model: str, seller: str, time: int) -> ModelPrices | None:
    listed_by, listed = price_book.find_seller_and_model(seller or None, model)
    rows: list[PriceRow] = []
    at_standard = []
    for tier in (STANDARD, *sorted(MODES - {PROVISIONED})):
        spans = list(_quotes_after(price_book, model, seller, tier, time))
        if spans and _is_service_tier_priced_as_standard(spans[0]):
            at_standard.append(tier)
        rows += [
            row
            for quote in spans
            if not _is_service_tier_priced_as_standard(quote)
            for row in _price_rows(tier or _STANDARD_NAME, quote)
        ]
    if not rows:
        return None
    return ModelPrices(
        provider=seller,
        model=listed.id if listed is not None else model,
        listed_by=listed_by or "",
        names=listed.match.equals if listed is not None else (),
        patterns=tuple(_pattern_texts(listed.match)) if listed is not None else (),
        has_own_prices=price_book.has_operator_prices(seller or None, model),
        at_standard=at_standard,
        rows=rows,
    )


def _quotes_after(price_book: PriceBook, model: str, seller: str, tier: str, time: int) -> Iterator[Quote]:
    listed = price_book.find_listed_model(seller or None, model)
    end = time + DAY_NS if _has_hourly_prices(listed) else NO_TIME
    for _ in range(_MOST_SPANS):
        quote = price_book.find_quote(seller or None, model, tier, time)
        yield quote
        time = quote.high
        if time >= end:
            return


def _is_service_tier_priced_as_standard(quote: Quote) -> bool:
    return quote.missing is not None and bool(quote.missing.mode)


def _has_hourly_prices(model: Model | None) -> bool:
    return model is not None and any(row.hours for row in model.prices)


def _price_rows(tier: str, quote: Quote) -> Iterator[PriceRow]:
    since, until = _moment_text(quote.low), _moment_text(quote.high)
    for above, rate in reversed(quote.parts):
        for unit, price in _shown_prices(rate):
            per = UNITS[unit].per_words if unit in UNITS else "one"
            words = UNITS[unit].words if unit in UNITS else unit
            yield PriceRow(tier, max(above, 0), words, price, per, since, until)


def _shown_prices(rate: PartRate) -> Iterator[tuple[str, str]]:
    yield from ((unit, rate.shown[unit]) for unit in UNITS if unit in rate.shown)
    if rate.per_request:
        yield "request", decimal_text(Decimal(rate.per_request).scaleb(-rate.digits))


def _moment_text(time: int) -> str:
    if not 0 < time < NO_TIME:
        return ""
    moment = datetime.fromtimestamp(time // NS, UTC)
    return f"{moment:%Y-%m-%d}" if time % DAY_NS == 0 else f"{moment:%Y-%m-%d %H:%M}"


def _pattern_texts(condition: ModelNameCondition) -> Iterator[str]:
    yield from (f"{text}*" for text in condition.starts_with)
    yield from (f"*{text}" for text in condition.ends_with)
    yield from (f"*{text}*" for text in condition.contains)
    yield from (f"/{text}/" for text in condition.regex)
    if condition.all:
        parts = [" or ".join((*part.equals, *_pattern_texts(part))) for part in condition.all]
        yield " and ".join(parts)
