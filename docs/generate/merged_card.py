"""
Adds the prices of two further lists to the rate card that `docs.generate.rate_card` made:
`python -m docs.generate.merged_card CARD`.

- Where LiteLLM's list has the same standard price, it fills in what the card lacks: service tiers, cached tokens
  and meters.
- Where it has another price, the catalogue of models.dev decides. The card changes only if that agrees with LiteLLM.
- A model that the card lacks, or that it knows only from another seller, is added.
- Then the catalogue of models.dev fills in cached tokens and models that are still missing.
- CORRECTIONS have the prices for which the sources were compared by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from docs.generate import price_sources
from docs.generate.price_sources import LITELLM, MODELS_DEV, MODELS_DEV_SELLERS
from gateway.intake.price_updates import (
    FILL,
    KEEP,
    NEWER,
    REPLACE,
    MergeDecision,
    NewerListEntry,
    has_hourly_prices,
    merge_cards,
)
from gateway.intake.rate_cards import litellm, names
from gateway.intake.rate_cards.card import (
    FORMAT,
    Model,
    ModelNameCondition,
    Price,
    RateCard,
    Seller,
    Tier,
    encode_card,
    read_card,
)
from gateway.intake.rates import row_in_force_or_first
from spool import providers
from spool.processing import STANDARD
from spool.record import NS

# The first day of LiteLLM's price, where the card's price is known to be old.
CORRECTIONS: Final[Mapping[tuple[str, str], str]] = {
    # DeepSeek replaced V3.1 by V3.2-Exp on that day, and ended the prices by hour before.
    ("deepseek", "deepseek-chat"): "2025-09-29",
    ("deepseek", "deepseek-reasoner"): "2025-09-29",
    # The alias names Mistral Large 3 since its release.
    ("mistral", "mistral-large-latest"): "2025-12-02",
    # xAI answers these names with a newer model since that day.
    ("x-ai", "grok-code-fast"): "2026-05-15",
    ("x-ai", "grok-code-fast-1"): "2026-05-15",
    ("x-ai", "grok-code-fast-1-0825"): "2026-05-15",
    # These models have their own prices. The card knew them only by the beginning of their names.
    ("google", "gemini-3.8-flash-cyber"): "2026-01-01",
    ("openai", "gpt-5.6-cyber"): "2026-01-01",
}
# Makers whose models cost the same at every seller.
_CLOSED: Final = frozenset({"anthropic", "google", "openai"})
# Geographies in front of a Bedrock id. The card knows only `global.` and the others together.
_GEOGRAPHIES: Final = ("apac.", "au.", "ca.", "eu.", "in.", "jp.", "us-gov.", "us.")
# Bedrock's premium for a geography, and for GovCloud.
_PREMIUMS: Final = (Decimal("1.1"), Decimal("1.2"), Decimal("1.2") / Decimal("1.1"))


class PriceSources:
    def __init__(self, day: str) -> None:
        self.day = day
        self.noon_ns = int(datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()) * NS
        self._third: dict[tuple[str, str], tuple[Decimal, Decimal]] = {}
        for name, models in price_sources.read(MODELS_DEV)["models"].items():
            seller = providers.provider_name_in_rate_cards(MODELS_DEV_SELLERS[name])
            for model, cost in models.items():
                self._third.setdefault((seller, model.lower()), (cost["input"], cost["output"]))

    def decide(self, listed: NewerListEntry) -> MergeDecision:
        seller, name = listed.seller, listed.name
        theirs = _price(listed.newer.prices[0])
        third = self._third.get((seller, name))
        since = CORRECTIONS.get((seller, name))
        if since is not None:
            return MergeDecision(NEWER, since)
        row = row_in_force_or_first(listed.found, self.noon_ns, STANDARD)
        ours = None if row is None else _price(row)
        is_borrowed = row is not None and not listed.is_own
        if is_borrowed and names.maker_name_in_price_lists(name.rpartition("/")[2]) not in _CLOSED:
            return MergeDecision(REPLACE, self.day)
        if ours == theirs:
            return MergeDecision(FILL, self.day)
        if is_borrowed:
            return MergeDecision(KEEP, self.day)
        if row is None:
            return MergeDecision(NEWER, self.day)
        if listed.found is not None and has_hourly_prices(listed.found):
            return MergeDecision(KEEP, self.day)
        if seller == "aws" and ours is not None and ours[0] and theirs[0]:
            if name.startswith(_GEOGRAPHIES):
                if theirs[0] / ours[0] in _PREMIUMS or third == theirs:
                    return MergeDecision(NEWER, self.day)
                # the card has no price of this geography, and its pattern of names is that of the US
                return MergeDecision(REPLACE if theirs[0] > ours[0] else KEEP, self.day)
            return MergeDecision(KEEP, self.day)
        return MergeDecision(NEWER if third == theirs else KEEP, self.day)

    def fill(self, listed: NewerListEntry) -> MergeDecision:
        """Decide about a model of models.dev, which only fills gaps."""
        row = row_in_force_or_first(listed.found, self.noon_ns, STANDARD)
        if row is None:
            return MergeDecision(NEWER, self.day)
        is_same = _price(row) == _price(listed.newer.prices[0])
        return MergeDecision(FILL if is_same and listed.is_own else KEEP, self.day)


def models_dev_card(day: str) -> RateCard:
    """Convert the catalogue of models.dev. It states 0 for unknown prices and for free models."""
    sellers: dict[str, dict[str, Model]] = {}
    for seller, models in price_sources.read(MODELS_DEV)["models"].items():
        listed = sellers.setdefault(providers.provider_name_in_rate_cards(MODELS_DEV_SELLERS[seller]), {})
        for name, cost in models.items():
            if cost["input"]:
                sizes = (
                    Tier(above=int(row["inputTokensAbove"]), **_amounts(row)) for row in cost.get("tiers", ())
                )
                row = Price(tiers=tuple(sizes), **_amounts(cost))
                id = name.lower()
                listed.setdefault(id, Model(id=id, match=ModelNameCondition(equals=(id,)), prices=(row,)))
    return RateCard(
        format=FORMAT,
        version="",
        source={"date": day},
        providers={seller: Seller(models=tuple(models.values())) for seller, models in sellers.items()},
    )


def _amounts(cost: Mapping[str, Decimal]) -> dict[str, Any]:
    names = {"input": "input", "output": "output", "cacheRead": "cache_read", "cacheWrite": "cache_write"}
    return {ours: cost[theirs] for theirs, ours in names.items() if cost[theirs]}


def _price(row: Price) -> tuple[Decimal, Decimal]:
    return row.input or Decimal(0), row.output or Decimal(0)


def made(card: RateCard) -> RateCard:
    source = price_sources.read(LITELLM)
    newer = litellm.convert_list(source["models"], day=card.source["date"], version="")
    sources = PriceSources(card.source["date"])
    full = merge_cards(merge_cards(card, newer, sources.decide), models_dev_card(sources.day), sources.fill)
    third: Mapping[str, Any] = price_sources.read(MODELS_DEV)
    return replace(full, source={**card.source, "also": f"{source['package']}, {third['package']}"})


def main() -> None:
    path = Path(sys.argv[1])
    path.write_bytes(encode_card(made(read_card(path))))


if __name__ == "__main__":
    main()
