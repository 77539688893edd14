"""
The field `concerns` of a recommendation covers all calls that it describes, so calls of another team do
not change it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gateway.money.recommendations.facts import RecommendationType
from gateway.money.recommendations.types import (
    batch,
    cheaper_model,
    context_tier,
    priority_tier,
    prompt_caching,
)
from spool.record import Inference
from tests.gateway.money.recommendations.examples import call, found
from tests.gateway.money.recommendations.test_conversations import talk
from tests.gateway.money.recommendations.test_exact_types import PRIORITY
from tests.gateway.money.recommendations.test_habits import OPUS, PEERS, job, working

LONG: dict[str, Any] = {"provider": "google", "request_model": "gemini-2.5-pro", "input_tokens": 201_000}


def of_team(record: Inference, team: str) -> Inference:
    return msgspec.structs.replace(record, team=team, user=f"{team}-user")


@pytest.mark.proves("A finding or a joint sum reveals what others spent")
@pytest.mark.parametrize(
    ("type", "calls"),
    [
        (priority_tier, lambda: [call(day, **PRIORITY) for day in (1, 2, 3)]),
        (context_tier, lambda: [call(day, **LONG) for day in (1, 2, 3)]),
        (batch, job),
        (prompt_caching, talk),
    ],
    ids=lambda each: getattr(each, "NAME", ""),
)
async def test_calls_of_others_are_not_in_it(
    type: RecommendationType, calls: Callable[[], list[Inference]]
) -> None:
    """The texts and amounts of a recommendation stay equal when another team uses the same model."""
    [alone] = await found(type, calls())
    other_calls = [
        of_team(example_call, "ads")
        if type is not batch
        else msgspec.structs.replace(example_call, team="ads")
        for example_call in calls()
    ]
    both = await found(type, [*calls(), *other_calls])
    assert {"search", "ads"} == {saving.concerns["team"] for saving in both}
    [same] = [saving for saving in both if saving.concerns["team"] == "search"]
    assert alone == same
    assert {"source", "provider", "model", "team", "tag:service"} == set(same.concerns)


async def test_what_compares_people_does_not_say_whose_calls_it_is_about() -> None:
    """
    A recommendation that compares people has no `concerns`, because it reveals what unnamed other people pay.
    """
    [saving] = await found(cheaper_model, [*working("ada", **OPUS), *PEERS])
    assert {} == saving.concerns
