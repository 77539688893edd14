"""
Recommendations about people who use an expensive model where others use a cheaper one, and about jobs that
could be batches.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.money.recommendations.facts import DAY_S
from gateway.money.recommendations.types import batch, cheaper_model
from spool.record import NS, Inference
from spool.registry.recommendations import Processing
from tests.gateway.money.recommendations.examples import NOW, call, found

OPUS: dict[str, Any] = {"provider": "anthropic", "request_model": "claude-opus-4-1"}
SONNET: dict[str, Any] = {"provider": "anthropic", "request_model": "claude-sonnet-5-5"}


def working(user: str | None, count: int = 20, **fields: Any) -> list[Inference]:
    return [call(number / 10, user=user, **fields) for number in range(1, count + 1)]


PEERS = [each for user in ("ben", "chen", "dina") for each in working(user, **SONNET)]


async def test_one_pays_far_more_than_the_others() -> None:
    """
    One person makes twenty calls at $15 + $7.50 with Opus 4.1. Three others use a model at $2 + $1 for the
    same work. The amounts are worked out by hand.
    """
    [saving] = await found(cheaper_model, [*working("ada", **OPUS), *PEERS])
    assert saving.monthly_savings == "390"
    assert saving.spent == "450"
    assert saving.current.model == "claude-opus-4-1"
    assert saving.recommended.model == "claude-sonnet-5-5"
    assert {"user": ["ada"]}.items() <= saving.dimensions.items()
    assert "ada" == saving.measured_by["user"]


@pytest.mark.parametrize(
    "calls",
    [
        [*working("ada", 19, **OPUS), *PEERS],
        [*working("ada", **OPUS), *PEERS[:40]],
        [*working("ada", **OPUS, output_tokens=300_000), *PEERS],
        [*working("ada", **OPUS, tags={"service": "other"}), *PEERS],
        [*working("ada", provider="anthropic", request_model="claude-opus-5"), *PEERS],
        [*working(None, **OPUS, team=None), *PEERS],
    ],
    ids=["few calls", "two peers", "other work", "another service", "not far more", "nobody knows who"],
)
async def test_no_reason_to_compare(calls: list[Inference]) -> None:
    assert [] == await found(cheaper_model, calls)


def job(days: int = 7, *, hours: tuple[int, ...] = (2,), a_day: int = 15, **fields: Any) -> list[Inference]:
    """Create calls at these hours of the last days, without a user."""
    midnight = NOW // DAY_S * DAY_S
    values: dict[str, Any] = {"provider": "anthropic", "request_model": "claude-sonnet-5-5", **fields}
    return [
        call(
            start_time=int(midnight - ago * DAY_S + hours[number % len(hours)] * 3600 + number) * NS, **values
        )
        for ago in range(1, days + 1)
        for number in range(a_day)
    ]


async def test_a_job_of_the_night() -> None:
    """By hand: 105 calls at $2 + $1 cost half as a batch."""
    [saving] = await found(batch, job())
    assert saving.monthly_savings == "157.5"
    assert saving.spent == "315"
    assert Processing(model="claude-sonnet-5-5", provider="anthropic", mode="batch") == saving.recommended


async def test_a_job_at_midnight() -> None:
    """
    A nightly job may run in the hours before and after midnight. On one day in seven it may be different.
    """
    [saving] = await found(batch, job(hours=(23, 0, 1)))
    assert "157.5" == saving.monthly_savings
    second_job = job(1, hours=(3, 9, 15))
    assert 1 == len(
        await found(batch, [*(job_call for job_call in job() if job_call not in second_job), *second_job])
    )


@pytest.mark.parametrize(
    "calls",
    [
        job(hours=(2, 8, 14, 20)),
        job(4, a_day=30),
        job(a_day=14),
        job(user="ada"),
        job(provider="openai", request_model="gpt-oss-120b"),
        job(tags={"service_tier": "flex"}),
    ],
    ids=["all day", "four days", "few calls", "a person", "no batch price", "another tier"],
)
async def test_no_job(calls: list[Inference]) -> None:
    assert [] == await found(batch, calls)
