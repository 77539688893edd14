"""
The field `concerns` of an insight covers all calls that it describes. Calls outside it do not change the insight.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.money.insights.detector_facts import PeriodSpend
from gateway.money.insights.detectors.calls import retry_storm
from gateway.money.insights.detectors.spending import spend_spike, view_anomaly
from spool.registry.insights import CallFilter, Finding
from spool.registry.views import SavedView
from tests.gateway.money.insights.examples import found, spend
from tests.gateway.money.insights.test_spend_spike import weeks
from tests.gateway.money.insights.test_view_anomaly import spent


def passing(spends: list[PeriodSpend], finding: Finding) -> list[PeriodSpend]:
    concerns = finding.concerns
    assert concerns is not None
    return [
        spend
        for spend in spends
        if all((getattr(spend, name) or "") in values for name, values in concerns.include.items())
    ]


@pytest.mark.proves("A finding or a joint sum reveals what others spent")
def test_a_spike_of_a_team_is_of_its_calls() -> None:
    """A spike of one team concerns the calls of that team. A spike over all teams has no `concerns`."""
    days = [
        *weeks(), *weeks(team="ads"), spend(3, cost=Decimal(90), model="o3"), spend(3, cost=Decimal(90), team="ads"),
    ]  # fmt: skip
    findings = found(spend_spike, days=days)
    assert {("search",), ("ads",)} == {
        finding.concerns.include["team"] for finding in findings if finding.concerns
    }
    for finding in findings:
        alone = found(spend_spike, days=passing(days, finding))
        assert finding.draft in [one.draft for one in alone]
    many = [spend for team in range(40) for spend in weeks(team=f"t{team}", factor="0.05")]
    rises = [spend(3, cost=Decimal(1), team=f"t{team}") for team in range(40)]
    assert [None] == [finding.concerns for finding in found(spend_spike, days=[*many, *rises])]


def test_a_storm_is_of_the_calls_of_one_client() -> None:
    """A finding about a retry storm concerns one source, model and team."""
    hours = [
        spend(errors=100, calls=120),
        spend(errors=50, calls=60, team="ads"),
        spend(errors=70, calls=80, model="o3"),
    ]
    failed = [
        spend(errors=100, calls=100, cost=Decimal(2)),
        spend(errors=50, calls=50, team="ads", cost=Decimal(9)),
    ]
    findings = found(retry_storm, hours=hours, failed=failed)
    assert 3 == len(findings)
    for finding in findings:
        [alone] = found(retry_storm, hours=passing(hours, finding), failed=passing(failed, finding))
        assert finding.draft == alone.draft
        assert finding.concerns == alone.concerns


def test_an_anomaly_is_of_the_calls_of_its_view() -> None:
    """A finding about a view keeps the filter that the view had when the anomaly was found."""
    view = SavedView(id="v", name="V", principal_dimension="model", filter={"team": ("a",), "!user": ("b",)}, created=0,
                last_updated=0)  # fmt: skip
    [finding] = found(view_anomaly, views=[spent({3: "50"}, view=view)])
    assert CallFilter(include={"team": ("a",)}, exclude={"user": ("b",)}) == finding.concerns
