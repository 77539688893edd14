"""
Reasons of a change: the sentence names what changed, with two numbers. Prices are a reason only if an entry of the
price list changed.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.configuration.prices import PriceOverride
from gateway.intake.prices import PriceBook
from gateway.money.comparison.comparing import compare_costs
from gateway.money.comparison.sentence import comparison_sentence
from gateway.money.costs.earlier_period import WHOLE, ComparedTimes, EarlierPeriodCoverage
from spool.ledger.periods import HOUR, ComparedSpans
from tests.gateway.money.comparison.test_comparing import BASELINE, BOOK, QUERY, MadeUp, spent

GPT = ("openai", "gpt-4o")
SPANS = ComparedSpans((QUERY.since, QUERY.until), (BASELINE.since, BASELINE.until), None, HOUR)
PAST = (
    EarlierPeriodCoverage(state=WHOLE, known_from=None, comparable_days=0),
    ComparedTimes(spans=SPANS, at=QUERY.until.timestamp(), currency="USD", since_cut=None, rest_cost=None),
)
NEW = BOOK.with_override(
    PriceOverride(model="gpt-4o", since="2026-11-01", input=Decimal(5), output=Decimal(20))
)
OLD_TOO = NEW.with_override(
    PriceOverride(model="gpt-4o", since="2026-10-01", input=Decimal(5), output=Decimal(20))
)


@pytest.mark.parametrize(
    ("now", "before", "book", "reason"),
    [
        # cost, tokens and calls of the query and of the time before
        (("4", 10**6, 20), ("2", 5 * 10**5, 10), BOOK, "2 times as many calls (20, before 10)"),
        (
            ("4", 10**6, 10),
            ("2", 5 * 10**5, 10),
            BOOK,
            "2 times as many tokens each (133,333, before 66,666)",
        ),
        (("8", 10**6, 10), ("4", 10**6, 10), NEW, "because prices rose: gpt-4o input $5, before $2.5"),
        # the same costs without a changed entry: large inputs, a tier or a region
        (("8", 10**6, 10), ("4", 10**6, 10), BOOK, "at $6.00 a million tokens, before $3.00"),
        (("8", 10**6, 10), ("4", 10**6, 10), OLD_TOO, "at $6.00 a million tokens, before $3.00"),
        # the price of an entry rose, and the cost per token fell
        (("2", 10**6, 10), ("4", 10**6, 10), NEW, "at $1.50 a million tokens, before $3.00"),
        # the changed entry of the price list explains less than half of the change
        (("80", 10**6, 10), ("4", 10**6, 10), NEW, "at $60.00 a million tokens, before $3.00"),
    ],
)
async def test_the_reason_has_two_numbers(
    now: tuple[str, int, int], before: tuple[str, int, int], book: PriceBook, reason: str
) -> None:
    """The part with the largest amount is the reason, and the parts add up to the change."""
    ledger = MadeUp(spent(1, "a", GPT, *now), spent(2, "a", GPT, *before))
    comparison = await compare_costs(ledger, QUERY, BASELINE, top=5, prices=book)
    text = comparison_sentence(comparison, *PAST)
    assert reason in text
    [driver] = comparison.drivers
    assert driver.now.cost - driver.before.cost == driver.parts.change


async def test_a_new_price_is_a_reason() -> None:
    """A model without a price gets one, and the sentence names this as the reason."""
    own = ("openai", "own-model")
    ledger = MadeUp(spent(1, "a", own, "4", 10**6), spent(2, "a", own, "0", 10**6))
    price = PriceOverride(model="own-model", since="2026-11-01", input=Decimal(3), output=Decimal(6))
    comparison = await compare_costs(ledger, QUERY, BASELINE, top=5, prices=BOOK.with_override(price))
    assert "because prices rose: own-model input $3, before without a price" in comparison_sentence(
        comparison, *PAST
    )


async def test_large_inputs_are_no_other_models() -> None:
    """
    Of 20 calls with 199,000 or 201,000 input tokens, more are now below the threshold of large inputs. No list price
    changed, and the models and kinds are the same.
    """
    gemini = ("gcp.gemini", "gemini-2.5-pro")
    for size in (201_000, 198_000):
        ledger = MadeUp(spent(1, "a", gemini, "7", 20 * size, 20), spent(2, "a", gemini, "9", 20 * size, 20))
        text = comparison_sentence(await compare_costs(ledger, QUERY, BASELINE, top=5, prices=BOOK), *PAST)
        assert "prices" not in text
        assert "other models" not in text
        assert "a million tokens, before $" in text


async def test_a_group_that_fell_is_no_reason_of_a_rise() -> None:
    """If only calls without a name cost more, the sentence says so before it names what cost less."""
    ledger = MadeUp(
        spent(1, "a", GPT, "1", 10**6, 10),
        spent(2, "a", GPT, "5", 10**6, 10),
        spent(1, None, GPT, "12", 10**6, 10),
        spent(2, None, GPT, "2", 10**6, 10),
    )
    text = comparison_sentence(await compare_costs(ledger, QUERY, BASELINE, top=5, prices=BOOK), *PAST)
    assert text.startswith(
        "1 Nov against 31 Oct: $6.00 more, in calls without a known name, or in small groups; a -$4.00, at $"
    )
