"""Recommendations computed exactly from tokens and prices, checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.money.recommendations.types import (
    cache_write_unread,
    context_tier,
    newer_model,
    priority_tier,
    regional_surcharge,
)
from gateway.money.recommendations.types.regional_surcharge import global_model_name
from spool.registry.recommendations import Processing
from tests.gateway.money.recommendations.examples import call, found

PRIORITY: dict[str, Any] = {"tags": {"service": "answers", "service_tier": "priority"}}
SMALL = {"input_tokens": 1_000, "output_tokens": 100}
SONNET = {"provider": "anthropic", "request_model": "claude-sonnet-5-5"}
BEDROCK: dict[str, Any] = {
    "provider": "aws.bedrock",
    "request_model": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
}


async def test_priority_costs_what_standard_does_not() -> None:
    """
    By hand: a million tokens in and 100,000 out with gpt-4.1 cost $3.50 + $1.40 as priority and $2 +
    $0.80 as standard.
    """
    [saving] = await found(priority_tier, [call(day, **PRIORITY) for day in (1, 2, 3)])
    assert saving.monthly_savings == "6.3"
    assert saving.spent == "14.7"
    assert "$14.7 as priority - $8.4 as standard" == saving.formula
    assert Processing(model="gpt-4.1", provider="openai", mode="priority") == saving.current
    assert Processing(model="gpt-4.1", provider="openai", mode="") == saving.recommended
    assert {"team": ["search"], "tag:service": ["answers"]}.items() <= saving.dimensions.items()
    assert saving.first_day < saving.last_day


async def test_a_discount_saves_as_much_less() -> None:
    """
    If the source reports half the list price, the saving is half. A higher reported cost does not raise the saving.
    """
    [half] = await found(priority_tier, [call(cost="2.45", **PRIORITY)])
    assert half.monthly_savings == "1.05"
    assert half.spent == "2.45"
    [double] = await found(priority_tier, [call(cost="9.8", **PRIORITY)])
    assert double.monthly_savings == "2.1"
    assert double.spent == "9.8"


async def test_standard_calls_are_left_alone() -> None:
    """Standard calls, calls from a gateway cache, and calls without a price save nothing."""
    assert [] == await found(priority_tier, [call(), call(status="cached", **PRIORITY)])
    assert [] == await found(priority_tier, [call(provider="acme", request_model="acme-1", **PRIORITY)])


async def test_a_region_costs_a_tenth_more() -> None:
    """By hand: Sonnet 4.5 above 200k tokens costs $6.60 + $2.475 in the US and $6 + $2.25 under the global name."""
    [saving] = await found(regional_surcharge, [call(**BEDROCK)])
    assert saving.monthly_savings == "0.825"
    assert saving.spent == "9.075"
    assert "global.anthropic.claude-sonnet-4-5-20250929-v1:0" == saving.recommended.model


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("us.anthropic.claude-x", "global.anthropic.claude-x"),
        ("us-gov.anthropic.claude-x", "global.anthropic.claude-x"),
        ("anthropic.claude-x", "global.anthropic.claude-x"),
        ("global.anthropic.claude-x", None),
        ("claude-x", None),
        ("gpt-4.1", None),
    ],
)
async def test_the_global_name(model: str, name: str | None) -> None:
    """Only model names that state a region have a global name."""
    assert name == global_model_name(model)


def writing(**fields: Any) -> dict[str, Any]:
    return {**SONNET, "input_tokens": 1_000_000, "output_tokens": 0, **fields}


async def test_writing_that_nobody_reads() -> None:
    """
    A cache write that is never read saves nothing. By hand: a million tokens of Sonnet 5.5 cost $2.50 as a
    cache write and $2 as plain input. If a tenth is read back, the saving changes.
    """
    [saving] = await found(cache_write_unread, [call(**writing(cache_write_tokens=1_000_000))])
    assert saving.monthly_savings == "0.5"
    assert saving.spent == "2.5"
    cached_calls = [call(**writing(cache_write_tokens=900_000, cache_read_tokens=100_000))]
    assert ["0.26"] == [each.monthly_savings for each in await found(cache_write_unread, cached_calls)]


async def test_writing_that_pays() -> None:
    """
    Cache writes are worth their price if enough is read. Reads by other calls of the same program count. At
    this price, it is enough to read a third of the written tokens.
    """
    written = call(**writing(cache_write_tokens=1_000_000))
    reading = call(2, **writing(cache_read_tokens=300_000, input_tokens=300_000))
    assert [] == await found(cache_write_unread, [written, reading])
    assert [] == await found(cache_write_unread, [call(**writing(cache_read_tokens=1_000_000))])


async def test_a_newer_model_of_the_same_rank() -> None:
    """
    A newer model of the same line is cheaper. By hand: $3 + $1.50 with Sonnet 4.5 become $2 + $1 with 5.5.
    The newest model that costs no more is recommended.
    """
    [saving] = await found(
        newer_model, [call(provider="anthropic", request_model="claude-sonnet-4-5", **SMALL)]
    )
    assert saving.monthly_savings == "0.0015"
    assert saving.spent == "0.0045"
    assert saving.recommended.model == "claude-sonnet-5-5"


@pytest.mark.parametrize(
    "model", ["gpt-4.1", "claude-sonnet-5-5", "gemini-2.5-pro", "gpt-oss-120b", "acme-1"]
)
async def test_nothing_newer_costs_less(model: str) -> None:
    """
    These models get no recommendation: they are the newest of their line, belong to no known line, or have a
    successor with a higher price.
    """
    assert [] == await found(newer_model, [call(provider=None, request_model=model)])


async def test_a_little_over_the_tier() -> None:
    """
    An input a little above the price tier could be shortened. By hand: 220,000 tokens in and 1,000 out with
    Gemini 2.5 Pro cost $0.55 + $0.015 above 200,000 tokens, and $0.275 + $0.01 below.
    """
    tokens: dict[str, Any] = {"input_tokens": 220_000, "output_tokens": 1_000}
    [saving] = await found(context_tier, [call(provider="google", request_model="gemini-2.5-pro", **tokens)])
    assert saving.monthly_savings == "0.28"
    assert saving.spent == "0.565"
    assert "$0.565 beyond 200,000 tokens - $0.285 below" == saving.formula


@pytest.mark.parametrize("size", [200_000, 251_000, 900_000])
async def test_not_over_the_tier_or_far_beyond(size: int) -> None:
    """
    An input at the limit still has the low price. An input more than a quarter above the limit is not
    expected to be shortened that much.
    """
    calls = [call(provider="google", request_model="gemini-2.5-pro", input_tokens=size, output_tokens=1_000)]
    assert [] == await found(context_tier, calls)


async def test_the_edge_of_a_quarter() -> None:
    """An input of 250,000 tokens is exactly a quarter above 200,000, so it is still reported."""
    calls = [call(provider="google", request_model="gemini-2.5-pro", input_tokens=250_000, output_tokens=0)]
    assert 1 == len(await found(context_tier, calls))
