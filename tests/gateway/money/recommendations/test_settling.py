"""
Overlapping recommendations: together they never save more than was spent, because each token is saved only once.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.money.recommendations.evaluation import StoredAdvice, evaluate_types, remove_overlaps
from gateway.money.recommendations.facts import DAY_S, DailyUse, Opportunity
from gateway.money.recommendations.list import TYPES
from spool.ledger.repricing import token_sum
from spool.ledger.sums import WIDTH, Dimensions
from spool.record import Inference
from spool.registry.recommendations import Processing, TypeSettings
from tests.gateway.money.recommendations.examples import NOW, call, facts_of, told
from tests.rounds import examples

WHERE = Dimensions("call", "s", "p", "m", "m", "t", "", "", "", "", "ok", "reported", "", 0)


def use(cost: int) -> DailyUse:
    tokens = token_sum(0, WHERE, [0] * WIDTH)
    return DailyUse(day=0, dimensions=WHERE, tokens=tokens, cost=cost, estimate=cost)


def opportunity(name: str, claims: Mapping[int, int]) -> Opportunity:
    anything = Processing()
    return Opportunity(
        subject=[name], claims=claims, title="", seen="", advice="", formula="",
        current=anything, recommended=anything, measured_by={},
    )  # fmt: skip


def test_largest_recommendation_is_settled_first() -> None:
    """The largest recommendation is settled first. The second one saves half of what the first leaves."""
    opportunities = [("small", opportunity("a", {0: 50})), ("large", opportunity("b", {0: 60, 1: 100}))]
    settled = remove_overlaps([use(100), use(200)], opportunities, minimum_saving=lambda _: 0)
    assert [("large", 160, 300), ("small", 20, 100)] == [
        (saving.type, saving.saving, saving.spent) for saving in settled
    ]


def test_ignored_recommendation_reduces_no_other() -> None:
    """
    An ignored recommendation reduces no other one. It is still shown, with what the others leave for it.
    """
    opportunities = [("ignored", opportunity("a", {0: 90})), ("other", opportunity("b", {0: 50}))]
    settled = remove_overlaps(
        [use(100)], opportunities, minimum_saving=lambda _: 0, is_ignored=lambda type, _: type == "ignored"
    )
    assert [("other", 50), ("ignored", 45)] == [(saving.type, saving.saving) for saving in settled]


def test_saving_below_the_minimum_is_not_shown() -> None:
    """
    A saving at the minimum is shown. A saving below the minimum is not shown and reduces no other saving.
    """
    opportunities = [
        ("one", opportunity("a", {0: 60})),
        ("two", opportunity("b", {0: 50})),
        ("three", opportunity("c", {0: 50})),
    ]
    least = {"one": 60, "two": 21, "three": 20}
    settled = remove_overlaps([use(100)], opportunities, minimum_saving=least.__getitem__)
    assert [("one", 60), ("three", 20)] == [(saving.type, saving.saving) for saving in settled]


@given(
    costs=st.lists(st.integers(0, 10**30), min_size=1, max_size=6),
    shares=st.lists(st.lists(st.fractions(-1, 1), min_size=6, max_size=6), max_size=8),
)
def test_savings_never_exceed_spend(costs: list[int], shares: list[list[Any]]) -> None:
    """
    Together, the savings are at most the spend. This holds for any overlap of the claims, and where a part of
    a change would cost more.
    """
    uses = [use(cost) for cost in costs]
    opportunities = [
        (
            str(number),
            opportunity(str(number), {place: int(cost * row[place]) for place, cost in enumerate(costs)}),
        )
        for number, row in enumerate(shares)
    ]
    settled = remove_overlaps(uses, opportunities, minimum_saving=lambda _: 0)
    assert sum(saving.saving for saving in settled) <= sum(costs)
    assert all(0 < saving.saving <= saving.opportunity.gross_saving <= saving.spent for saving in settled)


MODELS = ["gpt-4.1", "gpt-4o", "claude-sonnet-4-5", "claude-opus-4-1", "gemini-2.5-pro",
          "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "acme-1"]  # fmt: skip


@st.composite
def calls(draw: st.DrawFn) -> Inference:
    written, read = draw(st.integers(0, 100_000)), draw(st.integers(0, 100_000))
    return call(
        draw(st.integers(0, 29)) + 0.1,
        provider=None,
        request_model=draw(st.sampled_from(MODELS)),
        input_tokens=written + read + draw(st.integers(0, 400_000)),
        output_tokens=draw(st.integers(0, 20_000)),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cost=draw(st.sampled_from([None, None, "0", "0.01", "3"])),
        status=draw(st.sampled_from(["ok", "error", "cached"])),
        user=draw(st.sampled_from([None, "ada", "ben", "chen", "dina"])),
        session=draw(st.sampled_from([None, "s1", "s2"])),
        tags={"service_tier": draw(st.sampled_from(["default", "priority", "flex"]))},
    )


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(traffic=st.lists(calls(), max_size=40))
async def test_all_types_together_save_no_more_than_was_spent(traffic: list[Inference]) -> None:
    """
    For any traffic, each saving is at most the cost of its tokens, and their sum at most the total cost.
    """
    facts = await facts_of(traffic)
    known = StoredAdvice(
        settings={type.NAME: TypeSettings(least_savings="0", least_share="0") for type in TYPES}
    )
    evaluation = evaluate_types(facts, TYPES, known)
    assert [] == evaluation.failed
    saved = sum((Decimal(saving.monthly_savings) for saving in told(facts, evaluation)), Decimal(0))
    spent = sum(
        (
            Decimal(traffic_call.cost or traffic_call.estimated_cost or 0)
            for traffic_call in traffic
            if traffic_call.status != "cached"
        ),
        Decimal(0),
    )
    assert saved <= spent
    assert NOW - 30 * DAY_S < min((use.day for use in facts.uses), default=NOW)
