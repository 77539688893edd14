"""The format of a price list, as docs/money/price-list-format.md documents it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards import card as cards
from gateway.intake.rate_cards.card import (
    FORMAT,
    CardPrices,
    Model,
    ModelNameCondition,
    Price,
    RateCard,
    Seller,
    Tier,
)
from spool.processing import MODES, PROVISIONED
from tests.gateway.intake.test_prices import call

PAGE = (Path(__file__).parents[4] / "docs/money/price-list-format.md").read_text()
[EXAMPLE] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "0.0028"),  # 1000 x 2 + 100 x 8 per million
        ({"input": 1000, "output": 0, "read": 1000}, "0.0002"),
        ({"input": 200_000, "output": 0}, "0.4"),
        ({"input": 300_000, "output": 0}, "1.2"),  # the whole call costs 4 per million
        ({"time": "2027-01-01"}, "0.0039"),
        ({"tags": {"processing": "batch"}}, "0.0014"),
        ({"tags": {"service_tier": "flex"}}, "0.0028"),  # a tier without a price
    ],
)
def test_the_example_prices_calls_as_the_page_says(fields: dict[str, object], expected: str) -> None:
    book = PriceBook(cards.decode_card(EXAMPLE.encode()))
    for name in ("acme-large", "acme-large-2", "acme-large-latest"):
        assert expected == book.estimate_record(call(name, provider="acme", **fields))  # type: ignore[arg-type]


def test_every_field_is_documented() -> None:
    """Each field of the format is in a table of the page, and each name in the tables is a field."""
    structures = (RateCard, Seller, Model, ModelNameCondition, Price, Tier, CardPrices)
    fields = {field for structure in structures for field in structure.__struct_fields__}
    rows = re.findall(r"^\| (`[^|]*`) \|", PAGE, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert fields - {"above"} == documented  # `above` is in the text of `tiers`
    assert "`above`" in PAGE
    assert MODES - {PROVISIONED} == set(
        re.findall(r"`(\w+)`", re.findall(r"^\| `mode` \|.*$", PAGE, re.M)[0])
    ) - {"mode"}
    assert f"| `format` | {FORMAT} |" in PAGE
