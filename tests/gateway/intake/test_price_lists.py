"""
The packaged price list, compared with two public lists: LiteLLM's list, and the catalogue of models.dev.

Each price of these lists is one estimate of a made-up call. The expected cost is multiplied here from the other
list's own fields, in exact decimals. KNOWN explains every difference and names the list that is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

import pytest

from docs.generate.price_sources import LITELLM, LITELLM_SELLERS, MODELS_DEV, MODELS_DEV_SELLERS, read
from gateway.intake.prices import PriceBook
from gateway.intake.rates import Quote, Rate
from spool.processing import STANDARD
from spool.record import Inference
from tests.gateway.intake.test_prices import at

BOOK = PriceBook.load()
# A Friday, in hours in which DeepSeek's higher price applies. LiteLLM and models.dev have only that price.
TIME = at("2026-11-27 02:00")
MANY = 1000  # tokens
TIERS = {"": {}, "_batches": {"service_tier": "batch"}, "_flex": {"service_tier": "flex"},
         "_priority": {"service_tier": "priority"}}  # fmt: skip
SIZES = ("", "100", "128", "200", "256", "272")  # thousands of input tokens, above which a price applies
TEXT = ("chat", "completion", "responses", "embedding")


DISCOUNTED = ("batch", "flex")


class Estimate(NamedTuple):
    """A price of another list: the model there, the call that it applies to, and the cost by that list."""

    listed: str
    unit: str
    call: Inference
    cost: Decimal


class Known(NamedTuple):
    """
    Differences of one cause. `listed` and `unit` are patterns. `ratio` is our cost divided by theirs, or None if
    we have no estimate. "" stands for any ratio.
    """

    listed: str
    unit: str
    ratio: str | None
    right: str  # "ours", "theirs", or "open" if a third list does not decide
    why: str


LITELLM_KNOWN = (
    Known("anthropic.claude-*", "*", "1.1", "ours",
          "Bedrock charges 10 % more in a region than for global. profiles. The list has the global price."),
    Known("bedrock:claude-*", "*", "1.1", "ours", "The same, without the maker in the name."),
    Known("openai.gpt-6-*", "*", "1.1", "ours", "The same for OpenAI's models on Bedrock."),
    Known("*anthropic.claude-sonnet-4-*", "200 *", "", "ours",
          "Anthropic and models.dev no longer charge more above 200,000 tokens."),
    Known("bedrock:claude-sonnet-4-*", "200 *", "", "ours", "The same, without the maker in the name."),
    Known("*claude-*", "*_batches *", "2.2", "open",
          "The list has a batch price in a region that includes no premium, and we estimate at standard."),
    Known("azure/gpt-4-turbo*", "*", "0.9090909090909090909090909091", "open",
          "The list has the price of a regional deployment, we have that of a global one."),
    Known("azure/text-embedding-*", "*", "0.9090909090909090909090909091", "open", "The same for embeddings."),
    Known("azure/ada", "*", "0.9090909090909090909090909091", "open", "The same for embeddings."),
    Known("azure_ai/gpt-5.5*", "*_priority *", "1.25", "open",
          "The list has two prices, for Azure OpenAI and for Azure AI. We have the first."),
    Known("azure_ai/gpt-5.4-*", "*_priority *", "0.5", "open",
          "Only this list has the tier, and only at one of Azure's two services. We estimate at standard."),
    Known("azure/mistral-large-latest", "*", "0.25", "ours",
          "The list has the price of the first Mistral Large here, and that of the current one at azure_ai."),
    Known("*gpt*audio*", "*", None, "ours",
          "A call of an audio model that does not report its audio has no estimate."),
    Known("*gemini-omni-*", "*", None, "ours", "The same for models whose output is video."),
    Known("*gemini-3.5-flash*", "*_* cache_read", "", "open",
          "Google rounds these prices to two digits at one of its two services."),
    Known("*deep-research-pro-preview-12-2025", "*cache_read", "10", "open",
          "The list has a price of cached tokens at Vertex AI only. Gemini's API, which we use, has none."),
    Known("gemini-*-pro*", "200 cache_write", "", "ours",
          "The list has the price of an hour of storage. Writing costs as much as other input."),
    Known("mistral/magistral-medium-latest", "*", "", "open",
          "The list has the price of Mistral Medium 3.5. models.dev agrees with us."),
    Known("mistral/magistral-small-latest", "*", "", "open", "The list has the price of Mistral Small 4."),
    Known("mistral/mistral-medium", "*", "", "open", "The list has the price of Mistral Medium 3.5."),
    Known("mistral/open-mistral-nemo", "*", "", "ours", "models.dev agrees with us. The list has the old price."),
    Known("perplexity/sonar*", "*", "", "ours", "Perplexity charges a fee for each request. The list lacks it."),
    Known("perplexity/*-online", "*", None, "open", "These models are retired, and the list has no price of input."),
    Known("vertex_ai/claude-3-5-haiku*", "*", "0.8", "ours",
          "Anthropic lowered the price in December 2024. The list has the first price."),
    Known("deepseek/deepseek-v3.2", "*", "", "open",
          "The model is offered by others at other prices. DeepSeek itself sold it as deepseek-chat."),
)  # fmt: skip
MODELS_DEV_KNOWN = (
    Known(
        "amazon-bedrock/anthropic.claude-*",
        "*",
        "1.1",
        "ours",
        "Bedrock charges 10 % more in a region than for global. profiles. The catalogue has the global price.",
    ),
    Known(
        "amazon-bedrock/amazon.nova-2-lite-*",
        "*",
        "",
        "open",
        "The catalogue has the price in a region, LiteLLM that of global. profiles. We have the second.",
    ),
    Known(
        "amazon-bedrock/eu.amazon.nova-*",
        "*",
        "",
        "open",
        "The price depends on the region in the EU. We have that of LiteLLM, which is the highest.",
    ),
    Known(
        "amazon-bedrock/ca.amazon.nova-*",
        "*",
        "0.9375",
        "open",
        "Only this catalogue has a price for Canada. We have that of the US.",
    ),
    Known(
        "azure/deepseek-v4-pro",
        "*",
        "",
        "ours",
        "Azure's own price list has our price, as LiteLLM states. The catalogue has that of a region.",
    ),
    Known(
        "google/deep-research-*", "200 *", "", "open", "Only the catalogue has a price above 200,000 tokens."
    ),
    Known(
        "google/gemini-flash-latest", "*", "", "ours", "LiteLLM agrees that the alias names Gemini 3.8 Flash."
    ),
    Known(
        "google/gemini-flash-lite-latest",
        "*",
        "",
        "ours",
        "LiteLLM agrees that the alias names Gemini 3.5 Flash-Lite.",
    ),
)


def call(provider: str, model: str, tier: str, **counts: Any) -> Inference:
    return Inference(
        id=b"\0" * 16, source="test", provider=provider, request_model=model, start_time=TIME,
        tags=TIERS[tier], **{"output_tokens": 0, **counts},
    )  # fmt: skip


def of_litellm() -> Iterator[Estimate]:
    models: dict[str, dict[str, Any]] = read(LITELLM)["models"]
    for key, entry in models.items():
        head, slash, rest = key.partition("/")
        name = rest if slash else head
        provider = LITELLM_SELLERS.get(entry.get("litellm_provider", ""))
        if provider is None or "/" in name or name.startswith("ft:") or entry.get("mode") not in TEXT:
            continue
        listed = f"bedrock:{key}" if key.startswith("claude-") and provider == "aws.bedrock" else key
        for tier in TIERS:
            for size in SIZES:
                yield from _of_entry(entry, listed, provider, name, tier, size)


def _of_entry(
    entry: dict[str, Any], listed: str, provider: str, name: str, tier: str, size: str
) -> Iterator[Estimate]:
    ending = (f"_above_{size}k_tokens" if size else "") + tier
    input, output, read, write, hour = (
        entry.get(f"{field}{ending}")
        for field in (
            "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost",
            "cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr",
        )
    )  # fmt: skip
    if input is None or not (input or output):  # both are 0 where the list knows no price
        return
    count = int(size or 0) * 1000 + MANY
    calls = [("input", {"input_tokens": count}, count * input)]
    if output:
        calls.append(
            ("output", {"input_tokens": count, "output_tokens": MANY}, count * input + MANY * output)
        )
    if read:
        calls.append(("cache_read", {"input_tokens": count, "cache_read_tokens": count}, count * read))
    if write:
        calls.append(("cache_write", {"input_tokens": count, "cache_write_tokens": count}, count * write))
    if write and hour:
        counts = {"input_tokens": count, "cache_write_tokens": count, "cache_write_1h_tokens": count}
        calls.append(("cache_write_1h", counts, count * hour))
    for unit, counts, cost in calls:
        yield Estimate(listed, f"{size}{tier} {unit}", call(provider, name, tier, **counts), cost)


def of_models_dev() -> Iterator[Estimate]:
    sellers: dict[str, dict[str, Any]] = read(MODELS_DEV)["models"]
    for seller, models in sellers.items():
        for name, cost in models.items():
            if not cost["input"]:  # free, or included in a subscription
                continue
            for row in (cost, *cost.get("tiers", ())):
                yield from _of_row(row, seller, name)


def _of_row(row: dict[str, Any], seller: str, name: str) -> Iterator[Estimate]:
    size = int(row.get("inputTokensAbove", 0))
    count = size + MANY
    millionth = Decimal("0.000001")
    calls = [("input", {"input_tokens": count}, count * row["input"])]
    calls.append(
        (
            "output",
            {"input_tokens": count, "output_tokens": MANY},
            count * row["input"] + MANY * row["output"],
        )
    )
    if row["cacheRead"]:
        calls.append(
            ("cache_read", {"input_tokens": count, "cache_read_tokens": count}, count * row["cacheRead"])
        )
    if row["cacheWrite"]:
        counts = {"input_tokens": count, "cache_write_tokens": count}
        calls.append(("cache_write", counts, count * row["cacheWrite"]))
    for unit, counts, cost in calls:
        made = call(MODELS_DEV_SELLERS[seller], name, "", **counts)
        yield Estimate(f"{seller}/{name}", f"{size // 1000 or ''} {unit}", made, cost * millionth)


def is_explained(known: Known, estimate: Estimate, ours: Decimal | None) -> bool:
    if not (fnmatchcase(estimate.listed, known.listed) and fnmatchcase(estimate.unit, known.unit)):
        return False
    if ours is None or known.ratio is None:
        return ours is None and known.ratio is None
    return known.ratio == "" or Decimal(known.ratio) == ours / estimate.cost


@pytest.mark.parametrize(
    ("estimates", "known", "least"),
    [
        pytest.param(of_litellm, LITELLM_KNOWN, 5000, id="LiteLLM"),
        pytest.param(of_models_dev, MODELS_DEV_KNOWN, 900, id="models.dev"),
    ],
)
def test_every_difference_is_explained(estimates: Any, known: tuple[Known, ...], least: int) -> None:
    """
    All estimates equal the other list to the last digit, except the known differences. A known difference that
    no longer exists fails the test as well.
    """
    found: Counter[Known] = Counter()
    unexplained, count = [], 0
    for estimate in estimates():
        count += 1
        text = BOOK.estimate_record(estimate.call)
        ours = None if text is None else Decimal(text)
        if ours == estimate.cost:
            continue
        causes = [cause for cause in known if is_explained(cause, estimate, ours)]
        found.update(causes)
        if not causes:
            unexplained.append(f"{estimate.listed}, {estimate.unit}: {ours}, they have {estimate.cost:f}")
    assert not unexplained, "\n".join(unexplained)
    assert not [cause for cause in known if cause not in found]
    assert count >= least
    assert {cause.right for cause in known} <= {"ours", "theirs", "open"}
    assert found.total() < count * 0.08


@cache
@cache
def quotes_of_discounted_modes() -> list[tuple[str, Quote, Quote]]:
    """
    Return each name in the packaged list with a price of a discounted mode, the quote of the standard mode, and
    that of the mode, on each day on which a price changes.
    """
    found = []
    for seller, of_seller in BOOK.card.providers.items():
        for model in of_seller.models:
            times = {TIME, *(row.since_ns for row in model.prices if row.since)}
            for mode in DISCOUNTED:
                for time in sorted(times):
                    quote = BOOK.find_quote(seller, model.id, mode, time)
                    standard = BOOK.find_quote(seller, model.id, STANDARD, time)
                    is_listed = quote.missing is None or not quote.missing.mode
                    if quote.rate is not None and standard.rate is not None and is_listed:
                        found.append((f"{seller}: {model.id}, {mode}, {time}", standard, quote))
    return found


def price_per_token(rate: Rate, unit: str) -> Decimal:
    return Decimal(getattr(rate, unit) or 0).scaleb(-rate.digits)


def test_a_discount_applies_to_every_input_size() -> None:
    """
    Above each size at which a model's standard price changes, batch and flex calls cost the same share of the
    standard price as below it.
    """
    compared, wrong = 0, []
    for name, standard, quote in quotes_of_discounted_modes():
        assert standard.rate is not None
        assert quote.rate is not None
        for above, of_size in standard.tiers:
            reduced = next((rate for start, rate in quote.tiers if start <= above), quote.rate)
            for unit in ("input", "output"):
                compared += 1
                here = price_per_token(reduced, unit) * price_per_token(standard.rate, unit)
                there = price_per_token(of_size, unit) * price_per_token(quote.rate, unit)
                if here != there:
                    wrong.append(f"{name}, {unit} above {above}")
    assert not wrong, "\n".join(wrong)
    assert compared > 150


def test_a_batch_discount_of_claude_includes_cached_tokens() -> None:
    compared, wrong = 0, []
    for name, standard, quote in quotes_of_discounted_modes():
        if "claude" not in name:
            continue
        assert standard.rate is not None
        assert quote.rate is not None
        for unit in ("cache_read", "cache_write", "cache_write_1h"):
            if getattr(quote.rate, unit) is not None:
                compared += 1
                if price_per_token(quote.rate, unit) >= price_per_token(standard.rate, unit):
                    wrong.append(f"{name}, {unit}")
    assert not wrong, "\n".join(wrong)
    assert compared > 150


def test_a_batch_call_above_200000_tokens_at_bedrock() -> None:
    """The figures are worked out by hand: half of 6 dollars and half of 22.50 dollars per million tokens."""
    profile = "global.anthropic.claude-sonnet-4-5-20250929-v1:0"
    counts = {"input_tokens": 300_000, "output_tokens": 4000}
    assert BOOK.estimate_record(call("aws.bedrock", profile, "_batches", **counts)) == "0.945"
