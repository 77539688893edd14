"""
Counted usage in the form in which providers bill it: by seller, tier and kind of token, with values. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from gateway.bills.reconciliation.sides import (
    CACHE_READ,
    INPUT,
    METERS,
    OUTPUT,
    WRITE_1H,
    WRITE_5M,
    CountedUse,
)
from gateway.intake.prices import PriceBook
from gateway.intake.unit_prices import UNITS, UnpricedReason, charged_quantities, quantities_of_sum
from gateway.normalise.reading import models
from spool import money, providers
from spool.cost_kinds import ESTIMATED
from spool.ledger.days.usage import UsageSum
from spool.ledger.sums import DAY_S
from spool.ledger.token_sums import TokenSum
from spool.meters import DECIMALS, FEES
from spool.meters import METERS as METERS_OF_CALLS
from spool.record import NS

REASONING = "reasoning"
_NONE = {
    "calls": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_read_tokens": 0,
    "cache_write_tokens": 0,
    "reasoning_tokens": 0,
    "cache_write_1h_tokens": 0,
}
# Kind of token -> the usage of one token of this kind. The cost of this usage is the price per token.
_ONE_OF: Mapping[str, Mapping[str, int]] = {
    INPUT: {"input_tokens": 1},
    CACHE_READ: {"input_tokens": 1, "cache_read_tokens": 1},
    WRITE_5M: {"input_tokens": 1, "cache_write_tokens": 1},
    WRITE_1H: {"input_tokens": 1, "cache_write_tokens": 1, "cache_write_1h_tokens": 1},
    OUTPUT: {"output_tokens": 1},
    REASONING: {"output_tokens": 1, "reasoning_tokens": 1},
}


# Fee in the ledger -> its name in bills (see gateway.bills.statements.sources).
KIND_OF_FEE = {
    "web_searches": "web_search",
    "storage_searches": "file_search",
    "code_executions": "code_execution",
}

_BESIDE = {name: meter for name, meter in METERS_OF_CALLS.items() if not meter.is_part_of_token_count}
_KINDS = {KIND_OF_FEE.get(name, name) for name in _BESIDE}
# Word in billed lines -> the unit that it names.
_UNIT_WORDS = {
    "image": "images",
    "images": "images",
    "dall": "images",
    "imagen": "images",
    "second": "seconds",
    "seconds": "seconds",
    "minute": "seconds",
    "minutes": "seconds",
    "audio": "seconds",
    "transcription": "seconds",
    "whisper": "seconds",
    "page": "pages",
    "pages": "pages",
    "ocr": "pages",
    "character": "characters",
    "characters": "characters",
    "tts": "characters",
    "search": "searches",
    "searches": "searches",
}


# Kinds of tokens as bills count them. Audio and image tokens are part of input or output.
_KIND_OF_TOKENS = {"cache_read": CACHE_READ, "cache_write": WRITE_5M}


def _meter_for_unit(name: str) -> str:
    """
    Return the kind of token to which a priced unit belongs. For other units, return the name that bills use,
    or the unit itself.
    """
    unit = UNITS[name]
    if not unit.is_tokens:
        fee = KIND_OF_FEE.get(name, name)
        return fee if name in FEES else METERS_OF_CALLS[name].unit
    if name == "cache_write_1h_tokens":
        return WRITE_1H
    unit_dimensions = dict(unit.dimensions)
    return _KIND_OF_TOKENS.get(
        unit_dimensions.get("type", ""), OUTPUT if unit.direction == "output" else INPUT
    )


_METER_OF_UNIT = {name: _meter_for_unit(name) for name in UNITS}


def non_token_meter_of_line_kind(kind: str) -> str:
    """Return the meter or unit of a bill line that is not about tokens, by its kind, or ""."""
    if kind in _KINDS:
        return kind
    known = (_UNIT_WORDS.get(word, "") for word in kind.split("_"))
    return next(filter(None, known), "")


class _PriceKey(NamedTuple):
    provider: str | None
    response: str | None
    request: str | None
    mode: str
    time: int
    beyond: int
    until: int

    @classmethod
    def of_sum(cls, total: TokenSum) -> _PriceKey:
        names = total.provider, total.response_model, total.request_model, total.mode
        return cls(*names, total.time, total.beyond, total.until)


class TokenPrices:
    """
    Prices per token by kind, from a price book, in money units. Kinds without a known price, or whose price changes
    within the day, are omitted.
    """

    def __init__(self, price_book: PriceBook) -> None:
        self._book = price_book
        self._known: dict[_PriceKey, Mapping[str, int]] = {}
        self._without: TokenPrices | None = None

    def without_contracts(self) -> TokenPrices:
        if self._without is None:
            self._without = TokenPrices(self._book.without_contracts())
        return self._without

    def deciding_contract(self, total: TokenSum) -> str:
        return self._book.contract_that_prices(total)

    def unit_prices_of_sum(self, total: TokenSum) -> Mapping[str, int]:
        price_key = _PriceKey.of_sum(total)
        known_values = self._known.get(price_key)
        if known_values is None:
            known_values = self._known[price_key] = {
                kind: money.text_to_units(text)
                for kind, counts in _ONE_OF.items()
                if (text := self._book.estimate_sum(_token_sum(price_key, counts))) is not None
            }
        return known_values

    def meter_costs_of_sum(self, total: TokenSum) -> Mapping[str, int] | None:
        """
        Return the cost of the tokens and fees of a sum with meters, by kind. Return None if a price is
        unknown.
        """
        rate = self._book.part_rate(total)
        charged = None if rate is None else charged_quantities(rate, quantities_of_sum(total))
        if rate is None or charged is None or isinstance(charged, UnpricedReason):
            return None
        places = 10 ** (rate.digits + DECIMALS)
        amounts = Counter[str]()
        for leaf in charged:
            amounts[_METER_OF_UNIT[leaf.unit]] += leaf.amount * money.UNIT // places
        return amounts

    def fee_costs(self, total: TokenSum) -> Mapping[str, int]:
        """
        Return the cost of searches and code executions in a sum, by the names that bills use. Unpriced
        ones are omitted.
        """
        amounts = {}
        for name in FEES.intersection(total.meters):
            fee_sum = _token_sum(_PriceKey.of_sum(total), _NONE)
            fee = self._book.estimate_sum(replace(fee_sum, meters={name: total.meters[name]}))
            if fee is not None:
                amounts[KIND_OF_FEE.get(name, name)] = money.text_to_units(fee)
        return amounts

    def list_prices_on_day(
        self, provider: str, model: str, tier: str, day: int, context: int = 0
    ) -> Mapping[str, int]:
        """Return list prices on a day, for inputs in the context window that begins at `context` tokens."""
        span = day * NS, context, (day + DAY_S) * NS
        return self.unit_prices_of_sum(
            _token_sum(_PriceKey(provider, model or None, None, tier, *span), _NONE)
        )


def _token_sum(price_key: _PriceKey, counts: Mapping[str, int]) -> TokenSum:
    return TokenSum(
        provider=price_key.provider,
        response_model=price_key.response,
        request_model=price_key.request,
        mode=price_key.mode,
        time=price_key.time,
        beyond=price_key.beyond,
        until=price_key.until,
        **{**_NONE, **counts},  # type: ignore[arg-type]
    )


def group_uses_by_seller(sums: Iterable[UsageSum], prices: TokenPrices) -> dict[str, list[CountedUse]]:
    uses_by_seller: dict[str, list[CountedUse]] = {}
    for usage_sum in sums:
        dimensions = usage_sum.dimensions
        uses_by_seller.setdefault(
            find_seller(dimensions.source, dimensions.provider, dimensions.model), []
        ).append(to_counted_use(usage_sum, prices))
    return uses_by_seller


def find_seller(source: str | None, provider: str | None, model: str | None) -> str:
    """
    Return the seller that billed a call. Counters report no provider, so the maker of the model is used.
    """
    if source in providers.BILLED_BY_SOURCE:
        return providers.BILLED_BY_SOURCE[source]
    if provider:
        return providers.canonical_provider_name(provider)
    maker = models.maker_of_model((model or "").lower())
    return providers.canonical_provider_name(maker) if maker else ""


def seller_filter(seller: str) -> Mapping[str, tuple[str, ...]]:
    """Return the costs filter that selects a seller's calls."""
    sources = tuple(source for source, sold_by in providers.BILLED_BY_SOURCE.items() if sold_by == seller)
    return {"source": sources} if sources else {"provider": (seller,)}


def to_counted_use(usage_sum: UsageSum, prices: TokenPrices) -> CountedUse:
    """Return a sum of the ledger in the form in which providers bill it."""
    total = usage_sum.tokens
    dimensions = usage_sum.dimensions
    tokens = tokens_by_kind(total)
    values, fees = token_values_and_fees(total, tokens, prices)
    contract = prices.deciding_contract(total)
    return CountedUse(
        day=usage_sum.day,
        source=dimensions.source or "",
        key=dimensions.api_key or "",
        team=dimensions.team or "",
        model=dimensions.model or dimensions.request_model or "",
        tier=dimensions.mode,
        calls=total.calls,
        errors=total.calls if dimensions.status == "error" else 0,
        unsized=0 if usage_sum.sized else total.calls,
        tokens={meter: count for meter, count in tokens.items() if count},
        values=values,
        cost=usage_sum.cost,
        region=dimensions.region or "",
        fees=fees,
        context=total.beyond,
        reasoning=total.reasoning_tokens,
        beside=_non_token_quantities(total.meters) if total.meters else {},
        contract=contract,
        listed=token_values_and_fees(total, tokens, prices.without_contracts())[0] if contract else {},
        is_estimated=dimensions.cost_source == ESTIMATED,
    )


def tokens_by_kind(total: TokenSum) -> dict[str, int]:
    read, written = total.cache_read_tokens, total.cache_write_tokens
    written_1h = total.cache_write_1h_tokens
    output = total.output_tokens or 0
    counts = (total.input_tokens - read - written, read, written - written_1h, written_1h, output)
    return dict(zip(METERS, counts, strict=True))


def token_values_and_fees(
    total: TokenSum, tokens: Mapping[str, int], prices: TokenPrices
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the values of a sum's tokens by meter, and of its fees by the names that bills use."""
    price = prices.unit_prices_of_sum(total)
    values = {meter: tokens[meter] * price[meter] for meter in METERS if meter in price}
    if OUTPUT in price and REASONING in price:
        thought = min(total.reasoning_tokens, tokens[OUTPUT])
        values[OUTPUT] += thought * (price[REASONING] - price[OUTPUT])
    if not total.meters:
        return values, {}
    charged = prices.meter_costs_of_sum(total)
    if charged is None:
        return values, prices.fee_costs(total)
    return (
        {meter: charged.get(meter, 0) for meter in METERS},
        {kind: amount for kind, amount in charged.items() if kind not in METERS},
    )


def _non_token_quantities(meters: Mapping[str, int]) -> Mapping[str, int]:
    """
    Return quantities other than tokens, both by the names that bills use and by unit. A meter that is part of
    another meter is not added to its unit.
    """
    quantities = Counter[str]()
    for name, quantity in meters.items():
        meter = _BESIDE.get(name)
        if meter is None:
            continue
        quantities[KIND_OF_FEE.get(name, name)] += quantity
        if meters.keys().isdisjoint(meter.wholes):
            quantities[meter.unit] += quantity
    return quantities
