"""
Recommendations on conversations without provider caching, paid failures, and calls that resemble earlier ones.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.money.recommendations.facts import DAY_S
from gateway.money.recommendations.types import prompt_caching, response_cache, retries
from spool.record import Inference
from tests.gateway.money.recommendations.examples import call, found

MODEL: dict[str, Any] = {"provider": "anthropic", "request_model": "claude-sonnet-4-5", "source": "langfuse"}


def at(seconds_ago: float, **fields: Any) -> Inference:
    return call(seconds_ago / DAY_S, **fields)


def talk(sessions: int = 10, *, turns: int = 5, apart_s: float = 60, **fields: Any) -> list[Inference]:
    """Create conversations that start with 20,000 tokens and grow by 500 per turn."""
    return [
        at(40_000 - 1000 * session - apart_s * turn,
           **{**MODEL, "session": f"s{session}", "input_tokens": 20_000 + 500 * turn, "output_tokens": 100, **fields})
        for session in range(sessions) for turn in range(turns)
    ]  # fmt: skip


async def test_a_conversation_that_is_sent_again_and_again() -> None:
    """
    Conversations send the same text forty times and read nothing from a cache. The saving is the gain of
    cache reads minus the cost of cache writes.
    """
    [saving] = await found(prompt_caching, talk())
    assert "Prompt caching with claude-sonnet-4-5 for answers" == saving.title
    assert "2.076" == saving.monthly_savings
    assert "40 calls of the last five days" in saving.description


async def test_the_saving_is_what_the_price_book_says() -> None:
    """
    The expected amount is worked out by hand: input costs $3, cache reads $0.30 and cache writes $3.75 per
    million, for five turns of 20,000 to 22,000 tokens.
    """
    plain = sum(20_000 + 500 * turn for turn in range(5)) * Decimal(3)
    cached = 20_000 * Decimal("3.75")
    cached += sum((20_000 + 500 * turn) * Decimal("0.3") + 500 * Decimal("3.75") for turn in range(4))
    assert Decimal("2.076") == 10 * (plain - cached) / 1_000_000


@pytest.mark.parametrize(
    "calls",
    [
        [*talk(), at(10, session="s0", cache_read_tokens=5, **MODEL)],
        talk(apart_s=600),
        talk(sessions=50, turns=1),
        talk(input_tokens=900),
        talk(session=None),
        talk(request_model="acme-large", provider="acme"),
        talk(sessions=4),
    ],
    ids=["it reads", "pauses", "single turns", "short inputs", "no session", "no price", "few calls"],
)
async def test_where_a_cache_would_not_pay(calls: list[Inference]) -> None:
    """There is no recommendation where caching would cost more, or where too little is known."""
    assert [] == await found(prompt_caching, calls)


async def test_what_is_past_counts_no_more() -> None:
    """
    Only recent calls count for this recommendation, because last week's calls say nothing about today's client,
    whether or not they used a cache.
    """
    old = [at(6 * DAY_S, session="s0", cache_read_tokens=5, **MODEL)]
    assert 1 == len(await found(prompt_caching, [*old, *talk()]))


def failing(
    count: int = 5, *, after_s: float = 10, again: dict[str, Any] | None = None, **fields: Any
) -> list[Inference]:
    """Create calls of $2.80 that fail and are then sent again."""
    failing_calls = []
    for number in range(count):
        same: dict[str, Any] = {"input_tokens": 1_000_000 - number, **fields}
        failing_calls.append(at(5000 + 100 * number, **{"status": "error", "error_type": "timeout", **same}))
        failing_calls.append(at(5000 + 100 * number - after_s, **{**same, **(again or {})}))
    return failing_calls


async def test_failed_calls_that_were_paid_and_sent_again() -> None:
    """
    The expected amount is worked out by hand: five times $2.80, minus $2 per million for the ten tokens by
    which the repeats are shorter.
    """
    [saving] = await found(retries, failing())
    assert "13.99998" == saving.monthly_savings
    assert "5 of the newest calls of answers to gpt-4.1 failed (mostly timeout)" in saving.description


async def test_recent_calls_are_projected_to_the_month() -> None:
    """
    Of $27.99998, $13.99998 were failed calls. Two weeks ago the same work cost $14, so another $6.99999 could have been
    saved, and the texts say how.
    """
    earlier = [call(14) for _ in range(5)]
    other = [call(14, tags={"service": "another"})]
    [saving] = await found(retries, [*failing(), *earlier, *other])
    [alone] = await found(retries, failing())
    rate = Decimal(alone.monthly_savings) / Decimal("27.99996")
    assert Decimal(alone.monthly_savings) + 14 * rate == Decimal(saving.monthly_savings)
    assert "($13.99998 for 5 failed calls) x $41.99996 / $27.99996" == saving.formula
    assert "of all $42.00 that this work cost in the last 30 days" in saving.description
    assert "41.99996" == saving.spent


@pytest.mark.parametrize(
    "calls",
    [
        failing(4),
        failing(after_s=61),
        failing(again={"input_tokens": 5}),
        failing(again={"user": "ada"}),
        failing(again={"request_model": "gpt-4.1-mini"}),
        failing(status="ok"),
        [failing_call for failing_call in failing(10) if failing_call.status == "error"],
        failing(input_tokens=None),
    ],
    ids=[
        "few",
        "late",
        "another",
        "somebody else",
        "another model",
        "none failed",
        "not sent again",
        "not paid",
    ],
)
async def test_other_failures(calls: list[Inference]) -> None:
    """
    There is no recommendation about failed calls that are few, that were not paid, or that were not sent
    again soon and unchanged.
    """
    assert [] == await found(retries, calls)


async def test_a_repeat_that_fails_counts_too() -> None:
    """Each failed call counts once, whether its repeat fails or succeeds."""
    calls = [at(5000 - 10 * number, status="error") for number in range(5)] + [at(4950)]
    [saving] = await found(retries, calls)
    assert "14" == saving.monthly_savings


def asked(kinds: int, count: int, *, step: int = 100, apart_s: float = 60, **fields: Any) -> list[Inference]:
    """Create calls of several kinds in turn. The kinds differ by `step` input tokens."""
    return [
        at(600_000 - apart_s * number,
           **{"input_tokens": 1_000_000 + step * (number % kinds), "output_tokens": 1_000, **fields})
        for number in range(count)
    ]  # fmt: skip


async def test_the_same_question_again() -> None:
    """
    The expected amount is worked out by hand: of 24 calls of four kinds, twenty are repeats, at $2 per
    million input tokens and $0.008 for the output.
    """
    [saving] = await found(response_cache, asked(4, 24))
    costs = [Decimal("2.008") + kind * 100 * 2 / Decimal(1_000_000) for kind in range(4)]
    assert 5 * sum(costs) == Decimal(saving.monthly_savings)
    assert "20 of the newest 24 calls" in saving.description


async def test_repeats_that_may_be_chance_are_subtracted() -> None:
    """
    Repeats that may be chance are subtracted. Five calls have one token less, so five of 25 repeats at $2.008
    are subtracted. If the token counts of all kinds are adjacent, all repeats are subtracted.
    """
    beside = [
        at(600_000 - 60 * 24 - 1 - number, input_tokens=999_999 - number, output_tokens=1_000)
        for number in range(5)
    ]
    [saving] = await found(response_cache, [*asked(1, 26), *beside])
    assert "40.16" == saving.monthly_savings
    assert [] == await found(response_cache, asked(2, 60, step=1))


@pytest.mark.parametrize(
    "calls",
    [
        asked(4, 23),
        asked(60, 120, apart_s=61),
        asked(4, 24, session="s"),
        asked(4, 24, status="error"),
        [*asked(4, 24), *asked(1000, 180, step=7, output_tokens=2_000)],
    ],
    ids=["few", "after an hour", "in a session", "failed", "a small part"],
)
async def test_no_repeats_to_speak_of(calls: list[Inference]) -> None:
    """
    In these cases there is no recommendation: nineteen repeats, repeats after an hour, conversations,
    failures, and repeats of less than a tenth of the calls.
    """
    assert [] == await found(response_cache, calls)
