"""
Reader of LiteLLM's public price list (`model_prices_and_context_window.json`).

The list states dollars per single unit. It has no days, no hours and no patterns of names. A price of 0 is
left out, because the list writes 0 for unknown and for included usage. Prices by region are left out as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from msgspec.structs import replace

from gateway.intake.rate_cards import names
from gateway.intake.rate_cards.card import (
    ANY_REGION,
    FORMAT,
    CardPrices,
    CardUnreadable,
    Model,
    ModelNameCondition,
    Price,
    RateCard,
    Seller,
    Tier,
    directions_priced_by_token_kind,
)
from spool import providers

NAME: Final = "litellm"
URL: Final = "https://github.com/BerriAI/litellm"
_SAMPLE: Final = "sample_spec"  # name of a sample entry, which only explains the fields of the list
# Prices have at most nine decimals. Further digits are rounding errors of binary floats in the source.
_DECIMALS: Final = Decimal("1e-9")
# highest plausible price in dollars per million tokens; larger prices are mistakes
_HIGHEST: Final = Decimal(10_000)

_MILLION: Final = 10**6
_THOUSAND: Final = 1000
_HOUR: Final = 3600
_FIELDS: Final[Mapping[str, tuple[str, int]]] = {
    "input_cost_per_token": ("input", _MILLION),
    "output_cost_per_token": ("output", _MILLION),
    "cache_read_input_token_cost": ("cache_read", _MILLION),
    "cache_creation_input_token_cost": ("cache_write", _MILLION),
    "cache_creation_input_token_cost_above_1hr": ("cache_write_1h", _MILLION),
    "output_cost_per_reasoning_token": ("reasoning", _MILLION),
    "input_cost_per_request": ("per_request", 1),
}
_METERS: Final[Mapping[str, tuple[str, int]]] = {
    "input_cost_per_audio_token": ("input_audio_tokens", _MILLION),
    "output_cost_per_audio_token": ("output_audio_tokens", _MILLION),
    "cache_read_input_audio_token_cost": ("cache_audio_read_tokens", _MILLION),
    "input_cost_per_image_token": ("input_image_tokens", _MILLION),
    "output_cost_per_image_token": ("output_image_tokens", _MILLION),
    "cache_read_input_image_token_cost": ("cache_image_read_tokens", _MILLION),
    "input_cost_per_video_token": ("input_video_tokens", _MILLION),
    "output_cost_per_video_token": ("output_video_tokens", _MILLION),
    "cache_creation_input_token_cost_above_12hr": ("cache_write_12h_tokens", _MILLION),
    "citation_cost_per_token": ("output_citation_tokens", _MILLION),
    "input_cost_per_character": ("input_characters", _MILLION),
    "ocr_cost_per_page": ("input_document_pages", _THOUSAND),
    "annotation_cost_per_page": ("input_annotated_document_pages", _THOUSAND),
}
_OF_KINDS: Final[Mapping[tuple[str, str], tuple[str, int]]] = {
    ("audio_transcription", "input_cost_per_second"): ("audio_seconds", _HOUR),
    ("video_generation", "output_cost_per_second"): ("output_video_seconds", _HOUR),
    ("rerank", "input_cost_per_query"): ("rerank_searches", _THOUSAND),
}
_MODES: Final = {"": "", "_batches": "batch", "_flex": "flex", "_priority": "priority"}
_FIELD: Final = re.compile(
    r"(?P<name>.*?)(?:_above_(?P<above>\d+)k_tokens)?(?P<mode>_batches|_flex|_priority)?"
)
# Vertex AI's regions in the list are all but the global endpoint.
_REGIONAL: Final = {
    "regional_processing_uplift_multiplier_eu": "eu",
    "regional_processing_uplift_multiplier_us": "us",
    "regional_endpoint_uplift_multiplier": ANY_REGION,
}
_SEARCH_SIZES: Final = ("search_context_size_low", "search_context_size_medium", "search_context_size_high")
# Sellers whose model names have no `/`. In an entry of the list with a `/`, a region, a size of images or a
# commitment precedes the name.
_PLAIN_NAMES: Final = frozenset({"openai", "azure", "aws", "anthropic"})


def is_litellm_list(document: object) -> bool:
    return isinstance(document, dict) and any(
        isinstance(entry, dict) and "litellm_provider" in entry for entry in document.values()
    )


def convert_list(document: Mapping[str, Any], *, day: str, version: str) -> RateCard:
    """
    Convert a list of LiteLLM. `day` is the day of the list, which it does not state. Raises CardUnreadable
    with the model and the field if an entry is damaged.
    """
    sellers: dict[str, dict[str, Model]] = {}
    for key in sorted(document, key=lambda key: _is_outranked_by_preferred_provider(key, document[key])):
        entry = document[key]
        if key == _SAMPLE:
            continue
        if not isinstance(entry, dict):
            raise CardUnreadable(f"{key}: the entry is not an object")
        alias = entry.get("alias_of")
        entry = document.get(alias, entry) if isinstance(alias, str) else entry
        provider = entry.get("litellm_provider") if isinstance(entry, dict) else None
        if not isinstance(provider, str) or not provider or providers.is_self_hosted(provider):
            continue
        seller = _seller_name(provider)
        name = _model_name_without_seller(key, provider, seller)
        prices = tuple(_price_rows(key, entry, seller))
        if name is not None and prices:
            apart = directions_priced_by_token_kind(name, {meter for row in prices for meter in row.meters})
            regional = _regional_factors(key, entry)
            model = Model(
                id=name,
                match=ModelNameCondition(equals=(name,)),
                prices=prices,
                apart=apart,
                regional=regional,
            )
            known = sellers.setdefault(seller, {}).setdefault(name, model)
            if regional and not known.regional:
                known = sellers[seller][name] = replace(known, regional=regional)
            if known.prices[0] == prices[0] and len(known.prices) < len(prices):
                sellers[seller][name] = (
                    model  # if two services of a seller list the model, keep the entry with more price tiers
                )
    return RateCard(
        format=FORMAT,
        version=version,
        source={
            "name": NAME,
            "date": day,
            "url": URL,
            "licence": "MIT, Copyright (c) Berri AI",
            "models": str(sum(map(len, sellers.values()))),
        },
        providers={seller: Seller(models=tuple(models.values())) for seller, models in sellers.items()},
    )


def parse_price_list_json(content: bytes) -> Any:
    try:
        return json.loads(content, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CardUnreadable(f"the list is not JSON: {error}") from error


def _refuse_constant(constant: str) -> Decimal:
    raise ValueError(f"{constant} is not a number")


def _is_outranked_by_preferred_provider(key: str, entry: object) -> bool:
    """
    Return whether another entry for the model takes precedence: Gemini's API over Vertex AI; for Azure, the
    service made for the model.
    """
    provider = entry.get("litellm_provider") if isinstance(entry, dict) else None
    if provider in ("azure", "azure_ai"):
        service = (
            "azure"
            if names.maker_name_in_price_lists(key.rpartition("/")[2].lower()) == "openai"
            else "azure_ai"
        )
        return bool(provider != service)
    return str(provider).startswith("vertex_ai")


def _seller_name(provider: str) -> str:
    return providers.provider_name_in_rate_cards(
        "vertex_ai" if provider.startswith("vertex_ai") else provider
    )


def _model_name_without_seller(key: str, provider: str, seller: str) -> str | None:
    head, slash, rest = key.lower().partition("/")
    name = rest if slash and (_seller_name(head) == seller or head == provider) else key.lower()
    if name.startswith("ft:") or ("/" in name and seller in _PLAIN_NAMES):
        return None
    return name


def _price_rows(key: str, entry: Mapping[str, Any], seller: str) -> Iterator[Price]:
    """Yield the rows of prices. The standard row is first, and no other row exists without it."""
    if entry.get("currency", "USD") != "USD":
        raise CardUnreadable(f"{key}: the currency is {entry['currency']}, but must be USD")
    amounts: dict[str, dict[int, dict[str, Any]]] = {}
    sizes = _amounts_by_input_size(key, entry)
    if sizes:
        amounts[""] = sizes
    for field, value in entry.items():
        match = _FIELD.fullmatch(field)
        assert match is not None  # the pattern always matches, because each of its parts is optional
        named = _unit_and_quantity(match["name"], entry)
        amount = None if named is None else _read_amount(key, field, value, named[1])
        if (
            named is None
            or amount is None
            or (named[0] == "cache_write" and _is_cache_storage_price(key, seller))
        ):
            continue
        above = int(match["above"] or 0) * 1000
        of_mode = amounts.setdefault(_MODES[match["mode"] or ""], {})
        of_mode.setdefault(above, {})[named[0]] = amount
    searches = _search_price(key, entry)
    standard = amounts.get("", {}).get(0)
    if standard is None:
        return
    if standard.get("reasoning") == standard.get("output"):
        # without a separate price, reasoning has the price of other output in every tier
        standard.pop("reasoning", None)
    fast = _fast_mode_price_factor(key, entry)
    if fast is not None:
        amounts["fast"] = {
            above: {name: plain_decimal(amount * fast) for name, amount in row.items()}
            for above, row in amounts[""].items()
        }
    for mode in sorted(amounts):
        rows = amounts[mode]
        base = {**({} if searches is None else {"web_searches": searches}), **standard, **rows.pop(0, {})}
        tiers = [Tier(above=above, **_row_fields({**base, **rows[above]})) for above in sorted(rows)]
        yield Price(mode=mode, tiers=tuple(tiers), **_row_fields(base))


def _amounts_by_input_size(key: str, entry: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the prices of `tiered_pricing`, by the number of input tokens above which they apply."""
    tiers = entry.get("tiered_pricing")
    if tiers is None:
        return {}
    sizes: dict[int, dict[str, Any]] = {}
    for tier in tiers if isinstance(tiers, list) else [None]:
        above = _lower_end_of_range(tier)
        if above is None or not isinstance(tier, dict):
            raise CardUnreadable(f"{key}: tiered_pricing has a tier without a range of two numbers")
        row = sizes.setdefault(above, {})
        for field, value in tier.items():
            named = _FIELDS.get(field)
            amount = None if named is None else _read_amount(key, field, value, named[1])
            if named is not None and amount is not None:
                row[named[0]] = amount
    return sizes


def _lower_end_of_range(tier: object) -> int | None:
    ends = tier.get("range") if isinstance(tier, dict) else None
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, Decimal) for end in ends):
        return None
    return int(ends[0]) if 0 <= ends[0] < ends[1] else None


def _is_cache_storage_price(key: str, seller: str) -> bool:
    return seller == "google" and "gemini" in key


def _unit_and_quantity(name: str, entry: Mapping[str, Any]) -> tuple[str, int] | None:
    kind = entry.get("mode")
    named = _OF_KINDS.get((kind, name)) if isinstance(kind, str) else None
    return named or _FIELDS.get(name) or _METERS.get(name)


def _read_amount(key: str, field: str, value: object, per: int) -> Decimal | None:
    if value is None:
        return None
    if not isinstance(value, Decimal):
        raise CardUnreadable(f"{key}: {field} is not a number")
    amount = value * per
    if not 0 <= amount <= _HIGHEST:
        raise CardUnreadable(f"{key}: {field} is {value}, which is not a price in dollars per unit")
    return plain_decimal(amount) if amount else None


def _search_price(key: str, entry: Mapping[str, Any]) -> Decimal | None:
    sizes = entry.get("search_context_cost_per_query")
    if not isinstance(sizes, dict):
        return None
    amounts = {_read_amount(key, size, sizes.get(size), _THOUSAND) for size in _SEARCH_SIZES}
    return amounts.pop() if len(amounts) == 1 else None


def _regional_factors(key: str, entry: Mapping[str, Any]) -> dict[str, Decimal]:
    specific = entry.get("provider_specific_entry")
    us = specific.get("us") if isinstance(specific, dict) else None
    factors = {region: entry.get(field) for field, region in _REGIONAL.items()}
    factors["us"] = factors["us"] or us
    for factor in factors.values():
        if factor is not None and (not isinstance(factor, Decimal) or factor <= 0):
            raise CardUnreadable(f"{key}: the factor of a region is not a number above 0")
    return {region: plain_decimal(factor) for region, factor in factors.items() if factor not in (None, 1)}


def _fast_mode_price_factor(key: str, entry: Mapping[str, Any]) -> Decimal | None:
    specific = entry.get("provider_specific_entry")
    factor = specific.get("fast") if isinstance(specific, dict) else None
    if factor is None:
        return None
    if not isinstance(factor, Decimal) or factor <= 0:
        raise CardUnreadable(f"{key}: provider_specific_entry.fast is not a number above 0")
    return factor


def _row_fields(amounts: Mapping[str, Decimal]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: value for name, value in amounts.items() if name in _ROW_FIELDS}
    meters = {name: value for name, value in amounts.items() if name not in _ROW_FIELDS}
    return {**fields, "meters": meters} if meters else fields


_ROW_FIELDS: Final = frozenset(CardPrices.__struct_fields__) - {"meters"}


def plain_decimal(amount: Decimal) -> Decimal:
    return Decimal(f"{amount.quantize(_DECIMALS).normalize():f}")
