"""The sellers of one model charge more for large inputs from the same size on, by the same factors."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from decimal import Decimal
from typing import NamedTuple

from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards.card import Model, Price

# Sellers with other tiers than most sellers of the model, or with none. All these prices are from genai-prices 0.2.3,
# which reads them from the page of the seller, or for dashscope from LiteLLM.
OTHERWISE = {
    "avian": "minimax-m3",
    "aws": "grok-latest",
    "azure": "grok-4-20-non-reasoning grok-4-20-reasoning grok-code-fast-1 minimax-latest",
    "cursor": "grok-4-5 grok-4-6 grok-4-7",
    "dashscope": "qwen-plus",
    "fireworks": "minimax-m3",
    "github-copilot": "gpt-5-6-luna",
    "huggingface_fireworks-ai": "minimax-m3",
    "huggingface_novita": "minimax-m3",
    "huggingface_together": "minimax-m3",
    "novita": "minimax-m3",
    "openai-decisions": "gpt-6-luna",
    "openrouter": (
        "gemini-flash-1-5 gemini-flash-1-5-8b gemini-pro-1-5 gemini-pro-latest grok-code-fast-1 minimax-m3 "
        "qwen-plus-2025-07-28 qwen3-coder-flash qwen3-coder-plus qwen3-max"
    ),
    "quicksilverpro": (
        "claude-haiku-5-5 gemini-3-1-pro-preview gpt-5-6-luna gpt-5-6-sol gpt-5-6-terra gpt-6-1-sol gpt-6-1-terra "
        "gpt-6-astra gpt-6-luna gpt-6-sol grok-4-5 minimax-m3 qwen3-6-plus qwen3-7-flash qwen3-7-plus"
    ),
    "together": "minimax-m3 qwen3-6-plus qwen3-7-plus",
}


class Sold(NamedTuple):
    """The prices of one seller for a model."""

    seller: str
    family: str


def family_of(id: str) -> str:
    """Return the name of a model without its seller, maker, region and date."""
    name = id.lower().rpartition("/")[2].removeprefix("databricks-")
    name = re.sub(r"^(?:[a-z-]+\.)?anthropic\.", "", name)
    name = re.sub(r"-v\d(?::\d)?$", "", name)
    return re.sub(r"[-@]\d{8}$", "", name).replace(".", "-")


def tiers_of(price: Price) -> tuple[tuple[Decimal, ...], ...]:
    """Return the size and the factors of each tier. Some lists write 199,999 for 200,000."""
    tiers = []
    for tier in price.tiers:
        pairs = ((tier.input, price.input), (tier.output, price.output))
        factors = [round(dear / plain, 2) for dear, plain in pairs if dear is not None and plain]
        tiers.append((Decimal(tier.above + tier.above % 2), *factors))
    return tuple(tiers)


def standard(model: Model) -> Price | None:
    """Return the last standard price that does not depend on the hour."""
    return next((row for row in reversed(model.prices) if not row.mode and row.hours is None), None)


def differing() -> set[Sold]:
    sold: defaultdict[str, dict[Sold, set[tuple[tuple[Decimal, ...], ...]]]] = defaultdict(dict)
    for seller, catalogue in PriceBook.load().card.providers.items():
        for model in catalogue.models:
            family, price = family_of(model.id), standard(model)
            if price is not None and price.input is not None:
                sold[family].setdefault(Sold(seller, family), set()).add(tiers_of(price))
    found = set[Sold]()
    for sellers in sold.values():
        usual = Counter(tier for tiers in sellers.values() for tier in tiers if tier).most_common(1)
        if usual:
            found |= {each for each, tiers in sellers.items() if tiers != {usual[0][0]}}
    return found


def test_sellers_have_the_tiers_of_the_model_or_are_named() -> None:
    named = {Sold(seller, family) for seller, families in OTHERWISE.items() for family in families.split()}
    assert named == differing()
