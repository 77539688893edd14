"""The reader of LiteLLM's public price list: exact numbers, names of records, and faults that are refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards import card as cards
from gateway.intake.rate_cards import lists, litellm
from gateway.intake.rate_cards.card import CardUnreadable, RateCard
from tests.gateway.intake.test_prices import call

MOST = 10**6
MODEL: dict[str, Any] = {
    "litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 2e-06, "output_cost_per_token": 1.2e-05,
    "cache_read_input_token_cost": 2e-07, "input_cost_per_token_flex": 1e-06, "output_cost_per_token_flex": 6e-06,
    "input_cost_per_token_above_272k_tokens": 4e-06, "output_cost_per_token_above_272k_tokens": 1.8e-05,
    "input_cost_per_token_above_272k_tokens_flex": 2e-06, "supports_vision": True,
}  # fmt: skip


def read(**models: dict[str, Any]) -> RateCard:
    """Read a list. In the names of models, `__` stands for `/`."""
    document = {name.replace("__", "/"): entry for name, entry in models.items()}
    return lists.decode_price_list(json.dumps(document).encode(), day="2026-11-27", max_bytes=MOST)


def test_tiers_and_sizes() -> None:
    """
    A call has the price of its tier and its size. Prices that the list states only for standard calls, such as those of
    cached tokens, apply to other tiers as well.
    """
    book = PriceBook(read(acme=MODEL))
    flex = {"service_tier": "flex"}
    assert "0.0032" == book.estimate_record(call("acme"))  # 1000 x 2 + 100 x 12 per million
    assert "0.0016" == book.estimate_record(call("acme", tags=flex))
    assert "1.2018" == book.estimate_record(call("acme", input=300_000, output=100))
    assert "0.6006" == book.estimate_record(call("acme", input=300_000, output=100, tags=flex))
    assert "0.0002" == book.estimate_record(call("acme", read=1000, output=0, tags=flex))
    record = call("acme", tags={"service_tier": "priority"})
    book.price_record(record)
    assert record.price_book is not None and record.price_book.endswith("+priority-at-standard")
    assert record.price_book.startswith("litellm-2026-11-27-")


def test_sizes_in_a_list_of_tiers() -> None:
    """Alibaba Cloud's entries list a price for each range of input tokens, and no price outside of the list."""
    rows = [
        {"range": [0, 32000.0], "input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06},
        {
            "range": [32000.0, 128000.0],
            "input_cost_per_token": 2e-06,
            "output_cost_per_token": 9e-06,
            "cache_read_input_token_cost": 1e-07,
        },
    ]
    book = PriceBook(read(acme={"litellm_provider": "openai", "mode": "chat", "tiered_pricing": rows}))
    assert "0.0325" == book.estimate_record(call("acme", input=32_000, output=100))
    assert "0.064902" == book.estimate_record(call("acme", input=32_001, output=100))
    # 30,001 x 2 + 2,000 x 0.1 + 100 x 9
    assert "0.061102" == book.estimate_record(call("acme", input=32_001, output=100, read=2000))


def test_numbers_stay_exact() -> None:
    """A price from LiteLLM's list is exactly its number times a million. No binary fraction is involved."""
    text = b'{"acme": {"litellm_provider": "openai", "input_cost_per_token": 1.0e-7, "output_cost_per_token": 3e-7}}'
    card = lists.decode_price_list(text, day="2026-11-27", max_bytes=MOST)
    [price] = card.providers["openai"].models[0].prices
    assert (Decimal("0.1"), Decimal("0.3")) == (price.input, price.output)
    assert card == cards.decode_card(cards.encode_card(card))


@pytest.mark.parametrize(
    ("name", "entry", "seller", "model"),
    [
        ("gemini__gemini-9", {"litellm_provider": "gemini"}, "google", "gemini-9"),
        ("vertex_ai__claude-9@1", {"litellm_provider": "vertex_ai-anthropic_models"}, "google", "claude-9@1"),
        ("us.anthropic.claude-9-v1:0", {"litellm_provider": "bedrock_converse"}, "aws", "us.anthropic.claude-9-v1:0"),
        ("mistral__Large", {"litellm_provider": "mistral"}, "mistral", "large"),
        ("xai__grok-9", {"litellm_provider": "xai"}, "x-ai", "grok-9"),
        ("fireworks_ai__accounts__x__m", {"litellm_provider": "fireworks_ai"}, "fireworks", "accounts/x/m"),
        # the list has a price of only one region for this model
        ("azure__eu__gpt-9", {"litellm_provider": "azure"}, None, None),
        ("bedrock__us-east-1__claude-9", {"litellm_provider": "bedrock"}, None, None),
        ("ft:gpt-9", {"litellm_provider": "openai"}, None, None),
        ("ollama__llama", {"litellm_provider": "ollama"}, None, None),
        ("acme", {"litellm_provider": "openai", "input_cost_per_token": 0, "output_cost_per_token": 0}, None, None),
        ("sample_spec", {"litellm_provider": "one of https://...", "input_cost_per_token": 0}, None, None),
    ],
)  # fmt: skip
def test_names_and_sellers(name: str, entry: dict[str, Any], seller: str | None, model: str | None) -> None:
    """
    Each entry belongs to the seller and the name that records have. Entries for one region, and those with a price of
    0, are left out.
    """
    prices = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    found = {
        (of, each.id)
        for of, sold in read(**{name: {**prices, **entry}}).providers.items()
        for each in sold.models
    }
    assert found == (set() if seller is None else {(seller, model)})


def test_other_units() -> None:
    """Meters have the unit of Tollhouse: a million tokens or characters, a thousand searches or pages, an hour."""
    each_token = {"input_cost_per_token": 4e-6, "output_cost_per_token": 1.6e-5}
    audio = {"input_cost_per_audio_token": 3.2e-5, "output_cost_per_audio_token": 6.4e-5}
    searches = {f"search_context_size_{size}": 0.01 for size in ("low", "medium", "high")}
    other_searches = {**searches, "search_context_size_high": 0.02}
    of = {"litellm_provider": "openai"}
    card = read(
        talk={**of, "mode": "chat", **each_token, **audio, "search_context_cost_per_query": searches},
        hear={**of, "mode": "audio_transcription", "input_cost_per_second": 0.0001},
        say={**of, "mode": "audio_speech", "input_cost_per_character": 1.5e-5},
        mistral__scan={"litellm_provider": "mistral", "mode": "ocr", "ocr_cost_per_page": 0.004},
        sized={**of, "mode": "chat", **each_token, "search_context_cost_per_query": other_searches},
    )
    meters = {model.id: model.prices[0].meters for of in card.providers.values() for model in of.models}
    assert meters["talk"] == {
        "input_audio_tokens": Decimal(32), "output_audio_tokens": Decimal(64), "web_searches": Decimal(10),
    }  # fmt: skip
    assert meters["hear"] == {"audio_seconds": Decimal("0.36")}
    assert meters["say"] == {"input_characters": Decimal(15)}
    assert meters["scan"] == {"input_document_pages": Decimal(4)}
    assert meters["sized"] == {}
    assert [("input", "output")] == [
        model.apart for model in card.providers["openai"].models if model.id == "talk"
    ]


def test_regions_with_another_price() -> None:
    """The factors of regions are kept, also if only another service of the seller states them."""
    prices = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    card = read(
        openai__a={**MODEL, "regional_processing_uplift_multiplier_eu": 1.1},
        b={**prices, "litellm_provider": "anthropic", "provider_specific_entry": {"us": 1.1}},
        gemini__c={**prices, "litellm_provider": "gemini"},
        vertex_ai__c={
            **prices, "litellm_provider": "vertex_ai-language-models", "regional_endpoint_uplift_multiplier": 1.1,
        },
    )  # fmt: skip
    regional = {model.id: model.regional for of in card.providers.values() for model in of.models}
    factor = Decimal("1.1")
    assert {"a": {"eu": factor}, "b": {"us": factor}, "c": {"*": factor}} == regional
    [model] = card.providers["google"].models
    assert [True, True, False] == [
        model.has_regional_factor(name) for name in ("us", "europe-west4", "global")
    ]


def test_aliases_and_fast_mode() -> None:
    """An alias has the price of its model. A factor for fast mode multiplies every price."""
    listed = {"litellm_provider": "anthropic", "input_cost_per_token": 5e-6, "output_cost_per_token": 2.5e-5}
    models: dict[str, Any] = {
        "claude-9": {**listed, "provider_specific_entry": {"fast": 2.0}},
        "claude-latest": {"alias_of": "claude-9"},
    }
    card = read(**models)
    book = PriceBook(card)
    for name in ("claude-9", "claude-latest"):
        assert "0.0075" == book.estimate_record(call(name, provider="anthropic"))
        assert "0.015" == book.estimate_record(call(name, provider="anthropic", tags={"speed": "fast"}))


def entry(fields: str) -> bytes:
    return b'{"a": {"litellm_provider": "openai", ' + fields.encode() + b"}}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not JSON"),
        (entry('"input_cost_per_token": NaN'), "not JSON"),
        (entry('"input_cost_per_token": "2"'), "a: input_cost_per_token is not a number"),
        (entry('"input_cost_per_token": true'), "a: input_cost_per_token is not a number"),
        (entry('"input_cost_per_token": -1e-6'), "a: input_cost_per_token is -0.000001"),
        (entry('"input_cost_per_token": 2'), "a: input_cost_per_token is 2"),
        (entry('"input_cost_per_token": 1e-6, "currency": "CNY"'), "the currency is CNY"),
        (
            entry('"input_cost_per_token": 1e-6, "provider_specific_entry": {"fast": -1}'),
            "fast is not a number above 0",
        ),
        (entry('"tiered_pricing": 3'), "a: tiered_pricing has a tier without a range"),
        (entry('"tiered_pricing": [{"range": [2, 1]}]'), "a: tiered_pricing has a tier without a range"),
        (entry('"tiered_pricing": [{"range": ["0", 1]}]'), "a: tiered_pricing has a tier without a range"),
        (
            entry('"tiered_pricing": [{"range": [0, 1], "input_cost_per_token": "x"}]'),
            "a: input_cost_per_token is not a number",
        ),
        (b'{"a": {"litellm_provider": "openai"}, "b": 3}', "b: the entry is not an object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": 1}' + b" " * MOST, "larger than prices.max_file_bytes"),
    ],
)
def test_damaged_lists_are_refused(content: bytes, words: str) -> None:
    """A damaged list is refused as a whole, with the model and the field."""
    with pytest.raises(CardUnreadable, match=words):
        lists.decode_price_list(content, day="2026-11-27", max_bytes=MOST)


def test_the_whole_stored_list_is_read() -> None:
    """Every entry of LiteLLM's list of November 2026 is read, and most have a price."""
    from docs.generate.price_sources import LITELLM
    from docs.generate.price_sources import read as stored

    models = stored(LITELLM)["models"]
    card = litellm.convert_list(models, day="2026-11-27", version="litellm")
    assert sum(len(of.models) for of in card.providers.values()) > 1000
    assert card == cards.decode_card(cards.encode_card(card))
