"""Somebody who pays far more than others for the same work."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gateway.insights.detectors import dear_model
from gateway.insights.facts import Spend
from tests.gateway.insights.examples import found, spend


def people(n: int = 4, **fields: Any) -> list[Spend]:
    return [spend(user=f"u{each}", cost=Decimal(2), model="claude-sonnet-4-5", **fields) for each in range(n)]


def test_a_dear_model_among_peers() -> None:
    """Five times the price of a token; had it cost what it costs others, $8 were saved."""
    [finding] = found(dear_model, week=[*people(), spend(user="ada", cost=Decimal(10), model="claude-opus-4-1")])
    assert ("ada pays 5 times what others pay in answers", "8.00") == (finding.draft.title, finding.draft.cost_impact)
    assert "Try claude-sonnet-4-5 for this work" in finding.draft.description


def test_what_is_not_the_same_work() -> None:
    """Other lengths, another service, too few peers, the same model, less than three times, few calls: silent."""
    dear: dict[str, Any] = {"user": "ada", "cost": Decimal(10), "model": "claude-opus-4-1"}
    for week in (
        [*people(), spend(**dear, input_tokens=10_000)],
        [*people(), spend(**dear, output_tokens=90_000)],
        [*people(), spend(**dear, service="other")],
        [*people(2), spend(**dear)],
        [*people(), spend(**{**dear, "model": "claude-sonnet-4-5"})],
        [*people(), spend(**{**dear, "cost": Decimal(5)})],
        [*people(), spend(**dear, calls=10)],
        people(),
    ):
        assert [] == found(dear_model, week=week)


def test_teams_are_peers_where_no_user_is_known() -> None:
    """Who is the user, else the team, else the key."""
    teams = [spend(team=f"t{each}", cost=Decimal(1), model="gpt-4o-mini") for each in range(3)]
    [finding] = found(dear_model, week=[*teams, spend(team="legal", cost=Decimal(9), model="gpt-4o")])
    assert finding.draft.title.startswith("legal pays 9 times")
