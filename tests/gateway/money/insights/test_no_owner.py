"""The detector of spend without a team or a user."""

from __future__ import annotations

from decimal import Decimal

from gateway.money.insights.detectors.calls import no_owner
from tests.gateway.money.insights.examples import found, spend

OWNED = spend(cost=Decimal(50))


def test_spend_without_team_and_user() -> None:
    """The insight about spend without team and user is by source, with its keys and its share."""
    nobody = spend(team=None, user=None, source="helicone", api_key="ci", cost=Decimal(10))
    [finding] = found(no_owner, week=[OWNED, nobody])
    assert finding.draft.title == "$10.00 from helicone has no team or user"
    assert finding.draft.cost_impact == "10.00"
    assert (
        "17% of a week's spend came from helicone without a team or a user (keys: ci)"
        in finding.draft.description
    )


def test_a_user_or_a_team_is_an_owner() -> None:
    """A team or a user is enough, and small amounts are ignored."""
    user = spend(team=None, user="ada", cost=Decimal(50))
    little = spend(team=None, user=None, cost=Decimal(2))
    assert [] == found(no_owner, week=[OWNED, user, little])
    assert [] == found(no_owner, week=[spend(team=None, user=None, cost=Decimal("0.5"))])
