"""
The estimated cost of a call, next to the cost that its source reports.

All numbers are exact integers, and nothing is rounded. An unknown price gives None, never "0".

- The response model's price applies. If the response model has no price, the request model's price applies.
  Each is the price of the provider that served the call. If that provider is unknown or resells closed
  models, the price of the model's maker applies.
- Prices are those of the day (and hour) of the call. A call without a time gets the newest price. A price
  tier applies to the whole request.
- Reasoning is part of the output and has the same price, unless the price list says otherwise.
- Cache writes have the price for the shortest lifetime. For Claude models, writes kept for an hour
  have their own price. Without such a price, and for other models, they cost as much as other writes.
- Cached tokens without their own price cost as much as other input. Only Anthropic differs: a Claude model
  without such a price has no estimate.
- A batch, or another service tier without a price in the list, has the standard price. A region in which the
  seller charges more has the price without a region. The `price_book` of such a record says so.
- A call of an audio or image model has no estimate if it does not report the number of tokens of each kind.
- Tokens of prepaid capacity cost nothing, but additional fees are charged.
- A contract's discount applies to list prices and to a tier's share of the standard price. The contract's price of a
  tier replaces that of the list. Tokens that its capacity or a fee pays cost nothing. The `price_book` of such a record
  names it.
- `gateway.intake.unit_prices` prices units other than text tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.intake import unit_prices
from gateway.intake.price_terms import (
    PriceTerm,
    covering_terms,
    is_pattern_match,
    price_under_terms,
    terms_in_force,
)
from gateway.intake.rate_cards import card as cards
from gateway.intake.rate_cards import lists, names
from gateway.intake.rate_cards.card import DAY_NS, Model, ModelCatalogue, RateCard
from gateway.intake.rates import (
    NEVER,
    NO_TIME,
    MissingPrices,
    Quote,
    Rate,
    constant_price_span,
    cost_of_tokens,
    decimal_text_of_total,
    is_one_hour_price_missing,
    may_have_two_rates,
    override_start_ns,
    part_rates,
    price_row_with_only_fees,
    price_with_override,
    rate_for_input_size,
    rate_of_sum,
    rates_by_size,
    row_in_force_or_first,
    token_rate,
)
from gateway.intake.unit_prices import PartRate, UnpricedReason
from gateway.normalise.reading.credits import UNSCALED_CREDITS, replace_credits_of_unknown_scale_by_cost
from spool import providers
from spool.caches import remove_oldest_eighth
from spool.ledger.token_sums import TokenSum
from spool.processing import MARKS, PROVISIONED, STANDARD, STANDARD_TIER, processing_mode
from spool.record import CONTRACT_MARK, Inference

# ending of a price list's name if the standard price replaced a missing price, as in `+batch-at-standard`
_AT_STANDARD = "-at-standard"
_1H = "cache_write_1h"
_MEMO = 10_000  # maximum cached prices; limited, because senders choose the model names

# key of a cached price: provider, response model, request model, mode
_Names = tuple[str | None, str | None, str | None, str]
_PACKAGED = PriceSettings()
_NOTHING_MISSING = MissingPrices("", is_1h=False, regional=None)


class _OverridesAndTerms(msgspec.Struct, frozen=True):
    """The own prices and contract terms of a price book, as recalculations store them."""

    overrides: Sequence[PriceOverride] = ()
    terms: Sequence[PriceTerm] = ()


class PriceBook:
    """A price list, with the operator's own prices and the terms of contracts on top."""

    def __init__(
        self, card: RateCard, overrides: Sequence[PriceOverride] = (), terms: Sequence[PriceTerm] = ()
    ) -> None:
        self.card = card
        self.version = card.version
        if overrides:
            written = repr([_override_fields_for_book_version(override) for override in overrides]).encode()
            self.version += f"+overrides-{blake2b(written, digest_size=4).hexdigest()}"
        if terms:
            written = msgspec.json.encode(_without_contract_names(terms))
            self.version += f"+contracts-{blake2b(written, digest_size=4).hexdigest()}"
        self._overrides = overrides
        self._terms = terms
        self._providers = card.providers
        self._catalogues = {
            name: ModelCatalogue(provider.models) for name, provider in card.providers.items()
        }
        self._memo: dict[_Names, Quote] = {}

    @classmethod
    def load(
        cls,
        section: PriceSettings = _PACKAGED,
        data_dir: Path | None = None,
        own_prices: Sequence[PriceOverride] = (),
        terms: Sequence[PriceTerm] = (),
    ) -> PriceBook:
        """
        Load the prices. `own_prices` are prices that operators set without a file, and `terms` those of contracts.
        Raises CardUnreadable with the problem.
        """
        return cls(lists.read_price_list_in_use(section, data_dir), (*section.override, *own_prices), terms)

    def with_override(self, override: PriceOverride) -> PriceBook:
        return PriceBook(self.card, (*self._overrides, override), self._terms)

    def without_contracts(self) -> PriceBook:
        return PriceBook(self.card, self._overrides) if self._terms else self

    def price_record(self, record: Inference) -> None:
        """Estimate a record's cost. A reported cost never changes."""
        estimate, quote = self._estimate_and_quote(record)
        if record.charges and UNSCALED_CREDITS in record.charges:
            replace_credits_of_unknown_scale_by_cost(record, estimate)
        record.estimated_cost = estimate
        if estimate is None:
            record.price_book = None
        else:
            is_plain = quote.missing is None and not quote.contract
            record.price_book = self.version if is_plain else self._book_name_for_call(record, quote)
        if record.cost is not None or record.charges:
            record.cost_source = "reported"
        else:
            record.cost_source = "none" if estimate is None else "estimated"

    def _book_name_for_call(self, record: Inference, quote: Quote) -> str:
        """
        Return the name of the price list that a record states, with the prices that the list lacks, and the
        contract.
        """
        name, region = self.version, record.region
        missing = quote.missing or _NOTHING_MISSING
        if missing.mode:
            name += f"+{missing.mode}{_AT_STANDARD}"
        if missing.is_1h and record.cache_write_1h_tokens:
            name += f"+{_1H}{_AT_STANDARD}"
        if (
            region is not None
            and missing.regional is not None
            and missing.regional.has_regional_factor(region)
        ):
            name += f"+{region}{_AT_STANDARD}"
        return name + (quote.contract and f"{CONTRACT_MARK}{quote.contract}")

    def estimate_record(self, record: Inference) -> str | None:
        """
        Return the estimated cost of a call, as decimal text in dollars.

        Return None if any part of the cost is unknown, or if the call succeeded and reports no quantity with
        a price.
        """
        return self._estimate_and_quote(record)[0]

    def _estimate_and_quote(self, record: Inference) -> tuple[str | None, Quote]:
        tags = record.tags
        mode = STANDARD if not tags or MARKS.isdisjoint(tags) else processing_mode(tags)
        key = (record.provider, record.response_model, record.request_model, mode)
        time = record.start_time
        if time is None:
            time = NO_TIME
        low, high, rate, tiers, parts, _, _ = quote = self._memo.get(key, NEVER)
        if not low <= time < high:
            _, _, rate, tiers, parts, _, _ = quote = self._build_and_cache_quote(key, time)
        if record.meters:
            return _estimated_amount_text_of_record(parts, record), quote
        input_tokens = record.input_tokens
        if rate is None or input_tokens is None:
            return None, quote
        for above, dearer in tiers:
            if input_tokens > above:
                rate = dearer
                break
        amount = cost_of_tokens(
            rate,
            input_tokens,
            record.output_tokens,
            record.cache_read_tokens or 0,
            record.cache_write_tokens or 0,
            record.reasoning_tokens or 0,
            record.cache_write_1h_tokens or 0,
        )
        if not (amount or input_tokens or record.output_tokens) and record.status == "ok":
            return None, quote  # no price, because the call used something that its source does not report
        return decimal_text_of_total(amount, rate.digits), quote

    def quote_for_record(self, record: Inference) -> Quote:
        time = NO_TIME if record.start_time is None else record.start_time
        mode = processing_mode(record.tags)
        return self._cached_or_built_quote(
            (record.provider, record.response_model, record.request_model, mode), time
        )

    def find_quote(self, provider: str | None, model: str, mode: str, time: int) -> Quote:
        return self._cached_or_built_quote((provider, model, None, mode), time)

    def has_operator_prices(self, provider: str | None, model: str) -> bool:
        return bool(self._overrides_of_model(provider, model))

    def encode_rate_card_and_overrides(self) -> tuple[bytes, bytes]:
        """
        Return the texts from which `decode_rate_card_and_overrides` builds the book again. Names of contracts
        are left out, because they may name people.
        """
        on_top = _OverridesAndTerms(self._overrides, _without_contract_names(self._terms))
        return cards.encode_card(self.card), msgspec.json.encode(on_top)

    @classmethod
    def decode_rate_card_and_overrides(cls, card: bytes, overrides_and_terms: bytes) -> PriceBook:
        stored = msgspec.json.decode(overrides_and_terms, type=_OverridesAndTerms)
        return cls(_decode_card_cached(card), stored.overrides, stored.terms)

    def estimate_sum(self, total: TokenSum) -> str | None:
        """Return the cost of a sum of calls, which equals the sum of the costs of the single calls."""
        if not self.is_price_constant_over_time(total):
            return None
        if total.meters:
            return _estimated_amount_text_of_sum(self._quote_for_sum(total).parts, total)
        rate = self.rate_for_sum(total)
        return None if rate is None else decimal_text_of_total(cost_of_sum(rate, total), rate.digits)

    def is_price_constant_over_time(self, total: TokenSum) -> bool:
        """
        Return whether all calls of the sum have the same prices: none changes between `total.time` and
        `total.until`.
        """
        first = quote = self._quote_for_sum(total)
        while quote.high < total.until:
            quote = self._quote_for_sum(replace(total, time=quote.high))
            if quote[2:] != first[2:]:
                return False
        return True

    def is_service_tier_priced_as_standard(self, total: TokenSum) -> bool:
        """
        Return whether the calls have standard prices, because the list lacks the prices of their mode
        (service tier).
        """
        missing = self._quote_for_sum(total).missing
        return missing is not None and bool(missing.mode)

    def contract_that_prices(self, total: TokenSum) -> str:
        return self._quote_for_sum(total).contract

    def rate_for_sum(self, total: TokenSum) -> Rate | None:
        """
        Return the rate per token for a sum of calls, or None if it has no price or its calls may have
        different prices.
        """
        return rate_of_sum(_rates_by_size(self._quote_for_sum(total)), total)

    def may_have_two_prices(self, total: TokenSum) -> bool:
        """Return whether a price tier begins within the size class of the sum's calls."""
        quote = self._quote_for_sum(total)
        return may_have_two_rates(quote.parts if total.meters else _rates_by_size(quote), total)

    def part_rate(self, total: TokenSum) -> PartRate | None:
        """
        Return the rates of all units for a sum of calls, or None if its calls may have different prices.
        """
        if not self.is_price_constant_over_time(total):
            return None
        return rate_of_sum(self._quote_for_sum(total).parts, total)

    def _quote_for_sum(self, total: TokenSum) -> Quote:
        key = (total.provider, total.response_model, total.request_model, total.mode)
        return self._cached_or_built_quote(key, total.time)

    def _cached_or_built_quote(self, key: _Names, time: int) -> Quote:
        quote = self._memo.get(key, NEVER)
        return quote if quote.low <= time < quote.high else self._build_and_cache_quote(key, time)

    def rates_at(self, provider: str | None, model: str | None, time: int) -> Sequence[tuple[int, Rate]]:
        """
        Return the token rates of a model at a time (ns), with the number of input tokens above which each
        applies. The largest number is first and -1 last.
        """
        return _rates_by_size(self._cached_or_built_quote((provider, model, None, STANDARD), time))

    def newer_models(self, model: str) -> list[str]:
        """Return newer models of the same maker, family and rank (such as mini), the newest first."""
        for spelling in names.possible_spellings(model):
            position = names.model_family_rank_and_version(spelling)
            maker = self._providers.get(names.maker_name_in_price_lists(spelling) or "")
            if position is not None and maker is not None:
                positioned = [
                    (follower, model_row.id)
                    for model_row in maker.models
                    if (follower := names.model_family_rank_and_version(model_row.id)) is not None
                ]
                later = [
                    (follower, id)
                    for follower, id in positioned
                    if follower.line == position.line and follower > position
                ]
                return [id for _, id in sorted(later, reverse=True)]
        return []

    def price_changes_between(
        self, provider: str | None, model: str, since_ns: int, until_ns: int
    ) -> Iterator[tuple[int, Quote, Quote]]:
        """
        Yield each day (ns) in [since, until) on which new prices of a model start, with the quotes
        before and after.

        Both quotes apply at noon, so a lower price at night is not a change.
        """
        key = (provider, model, None, STANDARD)
        listed_model = self.find_listed_model(provider, model)
        days = {override_start_ns(row) for row in self._overrides_of_model(provider, model)}
        days.update(row.since_ns for row in (listed_model.prices if listed_model else ()))
        for day in sorted(day for day in days if since_ns <= day < until_ns):
            yield day, self._build_quote(key, day - DAY_NS // 2), self._build_quote(key, day + DAY_NS // 2)

    def _build_and_cache_quote(self, key: _Names, time: int) -> Quote:
        if len(self._memo) >= _MEMO:
            remove_oldest_eighth(self._memo)
        quote = self._memo[key] = self._build_quote(key, time)
        return quote

    def _build_quote(self, key: _Names, time: int) -> Quote:
        """
        Return the prices of a model at a time (ns). Prices that an operator set take precedence over the
        list, and the response model over the request model.
        """
        provider, response, request, mode = key
        models = [model for model in dict.fromkeys((response, request)) if model]
        overriding = next(
            (rows for model in models if (rows := self._overrides_of_model(provider, model))), []
        )
        listed_model = next(
            (model for name in models if (model := self.find_listed_model(provider, name))), None
        )
        terms = covering_terms(self._terms, provider, models, mode)
        edges = {edge for term in terms for edge in (term.start_ns, term.end_ns)}
        low, high = constant_price_span(listed_model, overriding, time, edges)
        row = row_in_force_or_first(listed_model, time, STANDARD if mode == PROVISIONED else mode)
        missing_mode = ""
        if mode not in (STANDARD, PROVISIONED) and (row is None or not row.has_prices):
            row = row_in_force_or_first(listed_model, time, STANDARD)
            missing_mode = mode
        id = listed_model.id if listed_model else ""
        apart = listed_model.apart if listed_model else ()
        override = _override_in_force(overriding, mode, time, is_unlisted=bool(missing_mode))
        if override is not None:
            row, id, apart = price_with_override(override, row), override.model, ()
            listed_model = None  # a configured price applies in every region, so no regional price is needed
            missing_mode = "" if override.tier else missing_mode
        of_call = terms_in_force(terms, time)
        if terms:
            standard = row_in_force_or_first(listed_model, time, STANDARD)
            row = price_under_terms(of_call, row, standard, is_own=override is not None)
            missing_mode = "" if of_call.prepaid_term or of_call.tier_price else missing_mode
        if row is None:
            return Quote(low, high, None)
        if mode == PROVISIONED:
            row = price_row_with_only_fees(row)
        if mode == PROVISIONED or of_call.prepaid_term:
            apart = ()
        # text prices do not apply if the parts of a call are unreported, because they may be tokens of any
        # kind
        rate = None if apart else token_rate(row, id)
        tiers = () if apart else rates_by_size(row, id)
        parts = part_rates(row, id, apart)
        regional = listed_model if listed_model is not None and listed_model.regional else None
        missing = MissingPrices(missing_mode, is_one_hour_price_missing(row, id), regional)
        contract = "" if override is not None and not of_call.prepaid_term else of_call.contract_names
        return Quote(low, high, rate, tiers, parts, missing if any(missing) else None, contract)

    def _overrides_of_model(self, provider: str | None, model: str) -> list[tuple[int, PriceOverride]]:
        seller = providers.provider_name_in_rate_cards(provider) if provider else None
        overrides = []
        for position, override in enumerate(self._overrides):
            is_of_seller = (
                not override.provider or providers.provider_name_in_rate_cards(override.provider) == seller
            )
            if is_of_seller and is_pattern_match(override.model, model):
                overrides.append((position, override))
        return overrides

    def find_listed_model(self, provider: str | None, name: str) -> Model | None:
        """Return the model of the first seller that lists it, or None if that seller has no price."""
        return self.find_seller_and_model(provider, name)[1]

    def find_seller_and_model(self, provider: str | None, name: str) -> tuple[str | None, Model | None]:
        spellings = list(dict.fromkeys(names.possible_spellings(name)))
        for seller in self._sellers_in_order(provider, spellings):
            catalogue = self._catalogues[seller]
            for spelling in spellings:
                model = catalogue.find_model(spelling)
                if model is not None:
                    priced = (row.input is not None or row.meters for row in model.prices)
                    return seller, model if any(priced) else None
        return None, None

    def _sellers_in_order(self, provider: str | None, spellings: Iterable[str]) -> Iterator[str]:
        if provider and providers.is_self_hosted(provider):
            return
        own_card = providers.provider_name_in_rate_cards(provider) if provider else None
        is_known = own_card in self._providers
        if own_card is not None and is_known:
            yield own_card
            yield from (seller for seller in self._providers[own_card].resells if seller in self._providers)
        for spelling in spellings:
            for seller in (names.provider_in_name(spelling), names.maker_name_in_price_lists(spelling)):
                if seller in self._providers and (not is_known or seller in names.CLOSED or seller == "aws"):
                    yield seller


def _override_in_force(
    overriding: Sequence[tuple[int, PriceOverride]], mode: str, time: int, *, is_unlisted: bool
) -> PriceOverride | None:
    """
    Return the operator's price that applies at a time (ns). A price for the tier takes precedence. A price
    without a tier applies to the standard tier, and to a mode (tier) without a list price.
    """
    has_general = mode == STANDARD or is_unlisted
    fitting = [
        (override.tier != "", override_start_ns((position, override)), position, override)
        for position, override in overriding
        if (override.tier == (mode or STANDARD_TIER) or (not override.tier and has_general))
        and override_start_ns((position, override)) <= time
    ]
    return max(fitting, key=lambda item: item[:3])[3] if fitting else None


def _without_contract_names(terms: Iterable[PriceTerm]) -> list[PriceTerm]:
    return [replace(term, contract="") for term in terms]


def missing_prices_in_book_name(price_book_name: str | None) -> list[str]:
    """
    Return the modes, regions and `cache_write_1h` for which the price list lacked a price, by the name in a
    record.
    """
    name, _, _ = (price_book_name or "").partition(CONTRACT_MARK)
    endings = name.split("+")[1:]
    return [ending.removesuffix(_AT_STANDARD) for ending in endings if ending.endswith(_AT_STANDARD)]


@lru_cache(maxsize=4)
def _decode_card_cached(content: bytes) -> RateCard:
    """
    Return the decoded price list. Price books with the same list share it, because decoding takes 60 ms.
    """
    return cards.decode_card(content)


def cost_of_sum(rate: Rate, total: TokenSum) -> int | None:
    """Return the cost of a sum of calls, in units of 10 ** -rate.digits dollars."""
    return cost_of_tokens(
        rate,
        total.input_tokens,
        total.output_tokens,
        total.cache_read_tokens,
        total.cache_write_tokens,
        total.reasoning_tokens,
        total.cache_write_1h_tokens,
        total.calls,
    )


def _estimated_amount_text_of_record(
    parts: tuple[tuple[int, PartRate], ...], record: Inference
) -> str | None:
    rate = rate_for_input_size(parts, record.input_tokens or 0)
    if rate is None:
        return None
    charged = unit_prices.charged_quantities(rate, unit_prices.quantities_of_record(record))
    if isinstance(charged, UnpricedReason):
        return None
    if not charged and not rate.per_request and record.status == "ok":
        return None  # no price, because the call used something that its source does not report
    return unit_prices.total_amount_text(rate, charged)


def _estimated_amount_text_of_sum(parts: tuple[tuple[int, PartRate], ...], total: TokenSum) -> str | None:
    rate = rate_of_sum(parts, total)
    if rate is None:
        return None
    charged = unit_prices.charged_quantities(rate, unit_prices.quantities_of_sum(total))
    return (
        None
        if isinstance(charged, UnpricedReason)
        else unit_prices.total_amount_text(rate, charged, calls=total.calls)
    )


def _rates_by_size(quote: Quote) -> Sequence[tuple[int, Rate]]:
    return () if quote.rate is None else (*quote.tiers, (-1, quote.rate))


def _override_fields_for_book_version(override: PriceOverride) -> tuple[Any, ...]:
    """
    Return the fields of an operator's price in the name of its price book. Empty `tier` and `meters` are left
    out, so the name stays as before these fields existed.
    """
    values = {field.name: getattr(override, field.name) for field in fields(override)}
    return tuple(value for name, value in values.items() if value or name not in ("tier", "meters"))
