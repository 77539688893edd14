"""Prices of single calls under a contract, compared with arithmetic by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.intake.price_terms import CAPACITY, DISCOUNT, PRIORITY, TIER_PRICE, PriceTerm
from gateway.intake.prices import PriceBook, missing_prices_in_book_name
from gateway.intake.rate_cards.card import CardPrices, day_ns
from spool.ledger.token_sums import TokenSum
from spool.record import Inference
from tests.gateway.intake.test_prices import BOOK, call

MODEL = "gpt-4o"  # 2.5 and 10 dollars per million tokens
DAY = "2026-11-15"
NOVEMBER = day_ns(DAY)


def term(kind: str, **fields: Any) -> PriceTerm:
    return PriceTerm(
        **{"contract": "Deal", "kind": kind, "provider": "openai", "since": "2026-11-01", **fields}
    )


def book(*terms: PriceTerm, own: PriceOverride | None = None) -> PriceBook:
    return PriceBook(BOOK.card, () if own is None else (own,), terms)


def used(tier: str = "") -> Inference:
    """Return a call of 1 million input tokens and 1 million output tokens."""
    tags = {"service_tier": tier} if tier else {}
    return call(MODEL, input=10**6, output=10**6, time=DAY, tags=tags)


DISCOUNTED = term(DISCOUNT, factor=Decimal("0.8"))
FLEX = term(TIER_PRICE, tier="flex", factor=Decimal("0.6"))
STATED = term(TIER_PRICE, tier="flex", amounts=CardPrices(input=Decimal(1), output=Decimal(3)))
FEE = term(PRIORITY, tier="priority", contract="Fast")
PAID = term(CAPACITY, models=("gpt-4o*",), contract="PTU")


@pytest.mark.parametrize(
    ("terms", "tier", "expected", "contract"),
    [
        ([DISCOUNTED], "", "10", "Deal"),
        ([FLEX], "flex", "7.5", "Deal"),
        ([FLEX], "", "12.5", ""),
        ([FLEX, DISCOUNTED], "flex", "6", "Deal"),
        ([STATED, DISCOUNTED], "flex", "4", "Deal"),
        ([PAID, DISCOUNTED, STATED], "", "0", "PTU"),
        ([PAID, DISCOUNTED, STATED], "flex", "0", "PTU"),
        ([FEE, DISCOUNTED], "priority", "0", "Fast"),
        ([FEE, DISCOUNTED], "", "10", "Deal"),
        ([FEE, PAID], "priority", "0", "PTU"),
        ([term(DISCOUNT, factor=Decimal("0.8"), models=("o3*",))], "", "12.5", ""),
        ([term(DISCOUNT, factor=Decimal("0.8"), provider="anthropic")], "", "12.5", ""),
        ([term(DISCOUNT, factor=Decimal("0.8"), since="2026-11-16")], "", "12.5", ""),
        ([term(DISCOUNT, factor=Decimal("0.8"), until="2026-11-15")], "", "12.5", ""),
        ([term(DISCOUNT, factor=Decimal("0.8"), until="2026-11-16")], "", "10", "Deal"),
    ],
)
def test_the_price_of_a_call(terms: list[PriceTerm], tier: str, expected: str, contract: str) -> None:
    """Sums of calls have the price of the call, and the name of the price list names the contract."""
    record, prices = used(tier), book(*terms)
    prices.price_record(record)
    assert expected == record.estimated_cost
    assert bool(contract) == (f"+contract:{contract}" in (record.price_book or ""))
    assert [] == [
        name for name in missing_prices_in_book_name(record.price_book) if contract and name == "flex"
    ]
    total = TokenSum(
        provider="openai", response_model=record.response_model, request_model=record.request_model, mode=tier,
        time=NOVEMBER, beyond=200_000, calls=1, input_tokens=10**6, output_tokens=10**6, cache_read_tokens=0,
        cache_write_tokens=0, reasoning_tokens=0, cache_write_1h_tokens=0,
    )  # fmt: skip
    assert expected == prices.estimate_sum(total)


def test_a_contract_covers_a_deployment_without_a_list_price() -> None:
    """
    Azure reports the name of the deployment as the requested model, so a contract can cover a deployment without a
    list price by this name.
    """
    prices = book(term(CAPACITY, models=("our-ptu",), provider="openai"))
    covered, other = (
        call(name, response="unlisted-model", input=5, output=5, time=DAY)
        for name in ("our-ptu", "our-standard")
    )
    assert ["0", None] == [prices.estimate_record(covered), prices.estimate_record(other)]


def test_a_price_of_the_operator_is_final_but_capacity_is_paid() -> None:
    own = PriceOverride(model=MODEL, input=Decimal(1), output=Decimal(1))
    assert "2" == book(DISCOUNTED, own=own).estimate_record(used())
    assert "0" == book(DISCOUNTED, PAID, own=own).estimate_record(used())


def test_without_contracts_nothing_changes() -> None:
    """Without contracts, the price book, its name and its records are the same as before."""
    first, second = used(), used()
    BOOK.price_record(first)
    plain = book(DISCOUNTED).without_contracts()
    plain.price_record(second)
    assert first == second
    assert BOOK.version == plain.version == book().version != book(DISCOUNTED).version


def test_a_book_with_contracts_is_opened_again_from_its_texts() -> None:
    prices = PriceBook.load(PriceSettings(), terms=(DISCOUNTED, STATED, PAID))
    again = PriceBook.decode_rate_card_and_overrides(*prices.encode_rate_card_and_overrides())
    assert prices.encode_rate_card_and_overrides() == again.encode_rate_card_and_overrides()
    assert (prices.version, prices.estimate_record(used("flex"))) == (
        again.version,
        again.estimate_record(used("flex")),
    )


@pytest.mark.parametrize(
    ("fields", "other", "expected"),
    [
        ({}, {}, True),
        ({"models": ("gpt-4o",)}, {"models": ("GPT-4o*",)}, True),
        ({"models": ("gpt-4o*",)}, {"models": ("gpt-*",)}, True),
        ({"models": ("gpt-4o",)}, {"models": ("gpt-4o-mini", "o3")}, False),
        ({"tier": "batch"}, {}, True),
        ({"tier": "batch"}, {"tier": "flex"}, False),
        ({"until": "2026-12-01"}, {"since": "2026-12-01"}, False),
        ({"until": "2026-12-02"}, {"since": "2026-12-01"}, True),
        ({}, {"provider": "anthropic"}, False),
    ],
)
def test_two_terms_that_may_cover_the_same_call(
    fields: dict[str, Any], other: dict[str, Any], expected: bool
) -> None:
    one, two = term(DISCOUNT, **fields), term(DISCOUNT, **other)
    assert expected == one.overlaps(two) == two.overlaps(one)
    assert not one.overlaps(term(CAPACITY, **other))
