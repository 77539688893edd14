"""Conversations past the provider's cache."""

from __future__ import annotations

from typing import Any

from gateway.insights.detectors import unused_cache
from gateway.intake.prices import PriceBook
from spool.record import Inference
from tests.gateway.insights.examples import call, found

BOOK = PriceBook.load()
MODEL = {"provider": "anthropic", "request_model": "claude-sonnet-4-5", "source": "langfuse"}


def talk(sessions: int = 10, *, turns: int = 5, apart_s: float = 60, **fields: Any) -> list[Inference]:
    """Conversations that begin with 20,000 tokens and grow by 500 a turn."""
    return [
        call(40_000 - 1000 * session - apart_s * turn,
             **{**MODEL, "session": f"s{session}", "input_tokens": 20_000 + 500 * turn, **fields})
        for session in range(sessions) for turn in range(turns)
    ]  # fmt: skip


def test_a_conversation_that_is_sent_again_and_again() -> None:
    """Forty turns read nothing; what reading would have saved is told, less what writing costs."""
    [finding] = found(unused_cache, recent=talk(), estimate=BOOK.estimate)
    assert "Prompt caching would have saved $2.08 with claude-sonnet-4-5" == finding.draft.title
    assert "2.08" == finding.draft.cost_impact
    assert finding.draft.description.startswith("What was seen: 40 calls")


def test_the_saving_is_what_the_price_book_says() -> None:
    """By hand: input $3, read $0.30, write $3.75 a million; five turns of 20,000 to 22,000 tokens."""
    plain = sum(20_000 + 500 * turn for turn in range(5)) * 3
    cached = 20_000 * 3.75 + sum((20_000 + 500 * turn) * 0.3 + 500 * 3.75 for turn in range(4))
    assert 2.08 == round(10 * (plain - cached) / 1_000_000, 2)


def test_where_a_cache_would_not_pay() -> None:
    """One that is read, pauses of ten minutes, single turns, short inputs, no session, an unknown price: silent."""
    for calls in (
        [*talk(), call(10, session="s0", cache_read_tokens=5, **MODEL)],
        talk(apart_s=600),
        talk(sessions=50, turns=1),
        talk(input_tokens=900),
        talk(session=None),
        talk(request_model="acme-large", provider="acme"),
    ):
        assert [] == found(unused_cache, recent=calls, estimate=BOOK.estimate)


def test_what_is_past_counts_no_more() -> None:
    """Calls of last week tell nothing of the client of today, whether they read from a cache or not."""
    old = [call(6 * 86400, session="s0", cache_read_tokens=5, **MODEL)]
    assert 1 == len(found(unused_cache, recent=[*old, *talk()], estimate=BOOK.estimate))
