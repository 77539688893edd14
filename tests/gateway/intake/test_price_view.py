"""All prices that apply to a model, as `tollhouse prices show` lists them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.configuration.prices import PriceOverride
from gateway.intake.price_view import ModelPrices, PriceRow, model_prices_by_seller, similar_models
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards.card import Tier
from tests.gateway.intake.test_price_updates import card, model, price
from tests.gateway.intake.test_prices import BOOK, at, call

NOW = at("2026-11-27 12:00")
CARD = card(
    model(
        "acme-2",
        price("2", tiers=(Tier(above=200_000, input=Decimal(4), output=Decimal(18)),)),
        price("3", since="2027-01-01", per_request=Decimal("0.01")),
        price("1", mode="batch", meters={"web_searches": Decimal(10)}),
        equals=("acme-latest",),
        starts=("acme-2-",),
    )
)


def one(price_book: PriceBook, name: str, provider: str | None = "openai", time: int = NOW) -> ModelPrices:
    [found] = model_prices_by_seller(price_book, name, provider, time)
    return found


def test_every_tier_size_and_change_is_listed() -> None:
    """
    The list has each unit by tier and size, the changes after the given time, and the names that have these prices.
    """
    found = one(PriceBook(CARD), "acme-2-20260101")
    assert ("acme-2", "openai", ("fast", "flex", "priority")) == (
        found.model, found.listed_by, tuple(found.at_standard),
    )  # fmt: skip
    assert ("acme-2", "acme-latest") == found.names
    assert ("acme-2-*",) == found.patterns
    assert [
        PriceRow("standard", 0, "input", "2", "million", "", "2027-01-01"),
        PriceRow("standard", 0, "output", "9", "million", "", "2027-01-01"),
        PriceRow("standard", 200_000, "input", "4", "million", "", "2027-01-01"),
        PriceRow("standard", 200_000, "output", "18", "million", "", "2027-01-01"),
        PriceRow("standard", 0, "input", "3", "million", "2027-01-01", ""),
        PriceRow("standard", 0, "output", "9", "million", "2027-01-01", ""),
        PriceRow("standard", 0, "request", "0.01", "one", "2027-01-01", ""),
    ] == [row for row in found.rows if row.tier == "standard"]
    assert [("input", "1"), ("output", "9"), ("web searches", "10")] == [
        (row.unit, row.price) for row in found.rows if row.tier == "batch" and not row.since
    ]
    later = one(PriceBook(CARD), "acme-2", time=at("2027-03-01"))
    assert {"2027-01-01"} == {row.since for row in later.rows}


def test_own_prices_are_those_that_apply() -> None:
    """With [[prices.override]], the own price is listed in place of the list price, also if no list has the model."""
    override = PriceOverride(model="acme-2", input=Decimal("1.5"), since="2026-12-01")
    found = one(PriceBook(CARD, (override,)), "acme-2")
    assert found.has_own_prices
    assert [("2", ""), ("1.5", "2026-12-01"), ("1.5", "2027-01-01")] == [
        (row.price, row.since)
        for row in found.rows
        if (row.tier, row.unit, row.above) == ("standard", "input", 0)
    ]
    own = PriceOverride(model="inhouse-*", input=Decimal(0), output=Decimal(0))
    [free] = model_prices_by_seller(PriceBook(CARD, (own,)), "inhouse-7b", None, NOW)
    assert {"0"} == {row.price for row in free.rows}


def test_prices_by_the_hour_are_listed_for_a_day() -> None:
    """A model whose price depends on the hour has the prices of the next 24 hours."""
    found = one(BOOK, "deepseek-v4-pro", "deepseek")
    inputs = [row for row in found.rows if row.unit == "input"]
    assert {"0.66", "1.32"} == {row.price for row in inputs}
    assert "2026-11-28 01:00" in {row.since for row in inputs}
    assert all(row.until for row in inputs)


@pytest.mark.parametrize(
    "name", ["gpt-5.6-terra", "claude-opus-5", "gemini-3.8-flash", "mistral-large-latest"]
)
def test_what_is_shown_is_what_is_charged(name: str) -> None:
    """For every provider and tier that is listed, a million tokens of input cost the listed price."""
    for found in model_prices_by_seller(BOOK, name, None, NOW):
        for row in found.rows:
            if row.unit == "input" and row.above == 0 and not row.since:
                tags = {} if row.tier == "standard" else {"service_tier": row.tier}
                record = call(
                    name, provider=found.provider, input=1000, output=0, time="2026-11-27 12:00", tags=tags
                )
                assert Decimal(row.price) / 1000 == Decimal(BOOK.estimate_record(record) or -1), (
                    found.provider,
                    row,
                )


def test_unknown_models_get_suggestions() -> None:
    assert [] == model_prices_by_seller(BOOK, "gpt-5.6-tera", None, NOW)
    assert similar_models(BOOK, "gpt-5.6-tera")[0] == "gpt-5.6-terra"
    assert "claude-sonnet-5" in similar_models(BOOK, "anthropic/claude-sonet-5")
    assert [] == similar_models(BOOK, "qqqqqqqqqqqqqq")
