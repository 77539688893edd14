"""
Which recommendations are shown: this depends on earlier decisions, on the minimum amount, and on the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from gateway.money.recommendations.evaluation import GRACE_S, MOST, StoredAdvice, evaluate_types
from gateway.money.recommendations.facts import DAY_S
from gateway.money.recommendations.list import TYPES
from gateway.money.recommendations.types import newer_model, priority_tier
from spool.people import USER_EMAIL
from spool.record import Inference
from spool.registry.insights import ADDRESSED, IGNORED
from spool.registry.recommendations import Recommendation, Saving, TypeSettings
from tests.gateway.money.recommendations.examples import NOW, call, facts_of, found, told

EVERYTHING = {type.NAME: TypeSettings(least_savings="0", least_share="0") for type in TYPES}


def priority(days_ago: float, **fields: str) -> Inference:
    return call(days_ago, tags={"service": "answers", "service_tier": "priority"}, **fields)


def kept(saving: Saving, status: str, at: float) -> Recommendation:
    return Recommendation(
        id="r", saving=saving, status=status, status_at=at, created=0, last_updated=0, found_at=0
    )


async def again(calls: Sequence[Inference], status: str, at: float) -> list[Saving]:
    """Evaluate again after the only recommendation was given this status."""
    [saving] = await found(priority_tier, calls)
    recommendations = {saving.key: kept(saving, status, at)}
    return await found(
        priority_tier, calls, StoredAdvice(settings=EVERYTHING, recommendations=recommendations)
    )


async def test_addressed_recommendation_reopens_only_for_calls_after_three_days() -> None:
    """
    After a recommendation is addressed, calls of the old kind count as part of the change for three days.
    Later calls of the old kind reopen it, and then only these later calls count.
    """
    addressed = NOW // DAY_S * DAY_S - 9 * DAY_S
    assert [] == await again([priority(20), priority(8), priority(7)], ADDRESSED, addressed)
    assert GRACE_S == 3 * DAY_S
    [saving] = await again([priority(20), priority(6)], ADDRESSED, addressed)
    assert "2.1" == saving.monthly_savings


async def test_what_is_ignored_is_found_all_the_same() -> None:
    """An ignored recommendation keeps its figures up to date."""
    assert 1 == len(await again([priority(5)], IGNORED, NOW))


async def test_two_types_on_the_same_tokens() -> None:
    """
    Two types may save on the same tokens. By hand: GPT-4o costs $5.95 as priority and $3.50 as standard, and
    GPT-4.1 costs $4.90 as priority. The larger saving is listed first.
    """
    facts = await facts_of([priority(1, request_model="gpt-4o")])
    first, second = told(
        facts, evaluate_types(facts, [newer_model, priority_tier], StoredAdvice(settings=EVERYTHING))
    )
    assert first.type == "priority_tier"
    assert first.gross_savings == "2.45"
    assert first.monthly_savings == "2.45"
    assert second.type == "newer_model"
    assert second.gross_savings == "1.05"
    assert second.monthly_savings.startswith("0.6176")  # $1.05 x $3.50 / $5.95
    assert "On its own, it would save $1.05. $0.62 remain" in second.description


async def test_a_type_that_fails_stops_no_other() -> None:
    """If one type fails, the others still run, and none of the failed type's recommendations is closed."""

    def fail(_: object) -> None:
        raise RuntimeError

    broken = SimpleNamespace(NAME="broken", find=fail)
    evaluation = evaluate_types(
        await facts_of([priority(1)]), [broken, priority_tier], StoredAdvice(settings=EVERYTHING)
    )
    assert evaluation.failed == ["broken"]
    assert evaluation.looked_for == ["priority_tier"]
    assert len(evaluation.settled) == 1


async def test_the_largest_of_a_type() -> None:
    """Of each type, only the twenty largest recommendations are shown."""
    calls = [priority(1, team=f"team {number}") for number in range(MOST + 1)]
    assert MOST == len(await found(priority_tier, calls))


async def test_recent_calls_of_people_with_two_names_are_known() -> None:
    """
    A call that states an account and an address is among the recent calls of its work, like a call with one name.
    """
    tags = {"service": "answers"}
    calls = [call(user="u-1", tags={**tags, USER_EMAIL: "email:1"}), call(user="u-2", tags=tags)]
    facts = await facts_of(calls)
    assert ["u-1", "u-2"] == sorted(recent.call.user or "" for recent in facts.recent)
