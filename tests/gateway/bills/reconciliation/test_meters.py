"""
Bill lines for audio, images, seconds, characters, pages and searches match the same meters of calls. Only a
difference in the same unit is claimed.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.bills.reconciliation.causes.list import find_claims
from gateway.bills.reconciliation.cells import ComparableDimensions, split_difference
from gateway.bills.reconciliation.claims import BillComparison, UnexplainedDifference
from gateway.bills.reconciliation.counting import TokenPrices, to_counted_use
from gateway.bills.reconciliation.matching import token_meter
from gateway.bills.reconciliation.sides import BilledMoney, BilledTokens, CountedUse
from gateway.bills.statements import cloud_meters
from gateway.configuration.prices import PriceOverride
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards import card as cards
from spool import money
from spool.ledger.days.usage import UsageSum
from spool.ledger.sums import Dimensions
from spool.ledger.token_sums import TokenSum
from spool.meters import SCALE
from spool.record import NS

MILLION = 10**6
DAY = 20_760 * 86400  # an arbitrary day in November 2026
OWN = PriceOverride(model="dall-e-3", meters={"output_images": Decimal("0.04")})
BOOK = PriceBook(cards.packaged_card(), (OWN,))
PRICES = TokenPrices(BOOK)
LEVELS = ComparableDimensions(key=False, tier=False, money_key=False, money_tier=False)


def counted(provider: str, model: str, meters: dict[str, int], **counts: int) -> CountedUse:
    """Create a day of calls at the price book's cost."""
    named = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0}
    total = TokenSum(
        provider=provider, response_model=None, request_model=model, mode="", time=DAY * NS, beyond=0, calls=10,
        reasoning_tokens=0, cache_write_1h_tokens=0, meters={name: count * SCALE for name, count in meters.items()},
        **{**named, **counts},
    )  # fmt: skip
    of = Dimensions("call", "litellm", provider, model, model, "", "", "", "", "", "ok", "estimated", "", 0)
    cost = money.text_to_units(BOOK.estimate_sum(total) or "0")
    return to_counted_use(UsageSum(day=DAY, dimensions=of, tokens=total, sized=True, cost=cost), PRICES)


def apart(use: CountedUse, tokens: dict[str, int], paid: dict[str, str]) -> list[tuple[str, str]]:
    """
    Return the claims for a bill with these tokens and amounts by kind, and assert that they explain
    the whole difference.
    """
    dimensions: dict[str, Any] = {"day": DAY, "account": "", "key": "", "model": use.model, "tier": None}
    billed_tokens = [
        BilledTokens(source="usage", meter=token_meter(kind), quantity=count, **dimensions)
        for kind, count in tokens.items()
    ]
    bill = [
        BilledMoney(source="costs", meter=token_meter(kind), amount=money.text_to_units(amount), **dimensions)
        for kind, amount in paid.items()
    ]

    def listed(model: str, tier: str, day: int, context: int) -> Any:
        return PRICES.list_prices_on_day("", model, tier, day, context)

    parts = split_difference(billed_tokens, bill, [use], prices=listed, comparable_dimensions=LEVELS)
    case = BillComparison(split=parts, remainder=UnexplainedDifference(parts), days=(DAY,))
    causes = [(claim.cause, money.units_to_text(claim.amount)) for claim in find_claims(case)]
    assert 0 == sum(case.remainder.amounts.values())
    return causes


def test_tokens_of_sound_and_images_meet_the_lines_of_a_bill() -> None:
    """
    The expected amounts are worked out by hand. One model has 2 million text tokens at 0.3 and 1 million
    audio tokens at 1. The other has 1 million tokens at 5, and images at 8 and at 32.
    """
    use = counted(
        "gcp.gemini", "gemini-2.5-flash", {"input_audio_tokens": MILLION},
        input_tokens=3 * MILLION, output_tokens=MILLION,
    )  # fmt: skip
    tokens = {"input": 2 * MILLION, "audio_input": MILLION, "output": MILLION}
    paid = {"input": "0.6", "audio_input": "1", "output": "2.5"}
    assert [] == apart(use, tokens, paid)
    assert [("price_change", "1")] == apart(use, tokens, {**paid, "audio_input": "2"})
    use = counted(
        "openai", "gpt-image-1.5", {"input_image_tokens": MILLION, "output_image_tokens": MILLION},
        input_tokens=2 * MILLION, output_tokens=MILLION,
    )  # fmt: skip
    tokens = {"input": MILLION, "image_input": MILLION, "image_output": MILLION}
    assert [] == apart(use, tokens, {"input": "5", "image_input": "8", "image_output": "32"})


@pytest.mark.parametrize(
    ("provider", "model", "meters", "kind", "paid"),
    [
        ("openai", "dall-e-3", {"output_images": 25}, "dall_e_3", "1"),
        ("openai", "whisper-1", {"input_audio_seconds": 7200}, "whisper_1", "0.72"),
        ("openai", "tts-1", {"input_characters": 2 * MILLION}, "tts_1", "30"),
        ("mistral_ai", "mistral-ocr-2512", {"input_document_pages": 500}, "ocr_pages", "1"),
        ("anthropic", "claude-opus-5", {"web_searches": 300}, "web_search", "3"),
        ("openai", "gpt-5.6-terra", {"storage_searches": 400}, "file_search", "1"),
    ],
)
def test_other_units_meet_the_lines_of_a_bill(
    provider: str, model: str, meters: dict[str, int], kind: str, paid: str
) -> None:
    """
    The expected amounts are worked out by hand: 25 images at 0.04, two hours at 0.36, 2 million characters at
    15, 500 pages at 2, and searches at 10 and 2.5.
    """
    use = counted(provider, model, meters)
    assert money.text_to_units(paid) == use.cost == sum(use.fees.values())
    assert [] == apart(use, {}, {kind: paid})
    assert [("meter_differs", "2")] == apart(use, {}, {kind: f"{Decimal(paid) + 2}"})


def test_searches_of_calls_do_not_match_billed_images() -> None:
    """Searches of calls do not match a bill line of images."""
    use = counted("anthropic", "claude-opus-5", {"web_searches": 300})
    causes = apart(use, {}, {"web_search": "3", "images": "4"})
    assert [("not_tokens", "4")] == causes


@pytest.mark.parametrize(
    ("unit", "meter", "kind"),
    [
        ("Images", "output_images", "images"),
        ("1 image", "NovaCanvas-T2I-1024-Standard", "images"),
        ("Seconds", "input_audio_seconds", "seconds"),
        ("1M Characters", "Neural Text to Speech", "characters"),
        ("1K Pages", "Read", "pages"),
        ("Requests", "web_searches", "web_search"),
        ("1K", "Grounding with Google Search", "web_search"),
        ("Requests", "storage_searches", "file_search"),
        ("count", "Imagen 4 Generation", "images"),
        ("1 Hour", "Provisioned Managed", None),
        ("GB", "Storage", None),
    ],
)
def test_the_unit_of_a_line_says_what_it_is_of(unit: str, meter: str, kind: str | None) -> None:
    assert kind == cloud_meters.non_token_kind(unit, cloud_meters.split_words(meter))
