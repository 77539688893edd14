"""The detector of days on which a view spent far more than before."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pytest

from gateway.money.insights.detector_facts import DAY_S, ViewSpend
from gateway.money.insights.detectors.spending import spend_spike, view_anomaly
from spool.registry.documents import replace_fields
from spool.registry.insights import Finding
from spool.registry.views import Anomalies, SavedView, ViewConnections
from tests.gateway.money.insights.examples import TODAY, found, impacts, spend

VIEW = SavedView(id="v1", name="Search", principal_dimension="model", created=0, last_updated=0)
HALF_MORE = replace_fields(VIEW, anomalies=Anomalies(threshold_type="Percent", threshold_value=50))


def spent(costs: Mapping[int, str], *, view: SavedView = VIEW, usual: str = "10") -> ViewSpend:
    """Create six weeks with a usual cost per day. `costs` sets the cost of single days, by days ago."""
    days: dict[float, dict[str | None, Decimal]] = {
        TODAY - ago * DAY_S: {"gpt-4o": Decimal(usual)} for ago in range(1, 43)
    }
    for ago, cost in costs.items():
        days[TODAY - ago * DAY_S] = {"gpt-4o": Decimal(cost) / 4, "o3": Decimal(cost) * 3 / 4}
    return ViewSpend(view=view, days=days)


def told(*spends: ViewSpend) -> list[Finding]:
    return list(found(view_anomaly, views=list(spends)))


def test_days_like_each_other_are_no_anomaly() -> None:
    """
    Equal days are no anomaly, and neither is a day that has just begun. This holds for the automatic rule and
    for a percentage.
    """
    assert [] == told(spent({0: "3"}), spent({0: "3"}, view=HALF_MORE))


def test_an_anomaly_names_the_view_and_the_largest_part() -> None:
    """
    An anomaly names its view and the largest part of the spend. Its impact is the amount above the expected cost.
    """
    [finding] = told(spent({3: "50"}))
    assert finding.draft.cost_impact == "40.00"
    assert finding.newest == TODAY - 3 * DAY_S
    assert "The view Search spent $50.00 on 18 Sep, but $10.00 was expected" == finding.draft.title
    assert "was the model o3 with $37.50" in finding.draft.description


@pytest.mark.parametrize(("cost", "titles"), [("50", ["The view"]), ("51", ["Team search", "The view"])])
def test_a_view_and_a_team_with_equal_calls_are_one_finding(cost: str, titles: list[str]) -> None:
    """If a view has the calls of a team, only the view reports the days. It has the channels that people chose."""
    days = [spend(ago, cost=Decimal(cost if ago == 3 else "10")) for ago in range(1, 43)]
    views = [spent({3: "50"})]
    both = [*found(spend_spike, days=days, views=views), *found(view_anomaly, days=days, views=views)]
    assert titles == [finding.draft.title.partition(" spent")[0].removesuffix(" Search") for finding in both]


def test_days_that_follow_each_other_are_one_anomaly() -> None:
    """If the cost stays high for several days, this is one anomaly with its first day."""
    [before] = told(spent({3: "50"}))
    [after] = told(spent({3: "50", 2: "50"}))
    assert before.key == after.key
    assert after.draft.cost_impact == "80.00"


@pytest.mark.parametrize(("cost", "is_told"), [("14.99", False), ("15", True), ("40", True)])
def test_a_view_sets_its_own_percentage(cost: str, is_told: bool) -> None:
    """
    A view's own percentage compares a day with the day before. A day exactly at the percentage is reported.
    """
    assert is_told == bool(told(spent({2: cost}, view=HALF_MORE)))


def test_each_day_over_the_percentage_is_reported() -> None:
    """
    Each day is compared with the actual day before, so a constant higher level is reported only on its first day.
    """
    assert ["40.00", "20.00"] == impacts(told(spent({5: "30", 4: "30", 2: "50"}, view=HALF_MORE)))


def test_rise_of_a_tiny_amount_is_no_anomaly() -> None:
    """A day that costs twice a tiny amount is no anomaly."""
    assert [] == told(spent({2: "0.9"}, view=HALF_MORE, usual="0.01"), spent({2: "0.9"}, usual="0.01"))


@pytest.mark.parametrize("view", [VIEW, HALF_MORE])
def test_first_days_of_a_view_are_no_anomaly(view: SavedView) -> None:
    """The first days of a view are never an anomaly, because too few days are known."""
    days: dict[float, Mapping[str | None, Decimal]] = {TODAY - DAY_S: {None: Decimal(90)}}
    assert [] == told(ViewSpend(view=view, days=days))
    assert [] == told(ViewSpend(view=view, days={}))


def test_views_do_not_hide_each_other() -> None:
    """Every unusual view has a finding."""
    views = [replace_fields(VIEW, id=f"v{number}") for number in range(50)]
    assert 50 == len(told(*(spent({1: "50"}, view=view) for view in views)))


def test_findings_about_views_end_after_a_week() -> None:
    """The findings about unusual views end after a week."""
    assert [] == told(spent({8: "50"}), spent({8: "50"}, view=HALF_MORE))


def test_an_anomaly_stays_the_same_when_it_is_found_again() -> None:
    """An anomaly that is found again keeps its key, even if the view has a new name."""
    [before], [after] = (
        told(spent({1: "50"}, view=replace_fields(VIEW, name=name))) for name in ("Search", "Find")
    )
    assert before.key == after.key


@pytest.mark.parametrize(
    ("created", "channels"), [(0.0, ("oncall",)), (TODAY - DAY_S, ("oncall",)), (TODAY, ())]
)
def test_days_before_the_view_notify_no_channel(created: float, channels: tuple[str, ...]) -> None:
    """Days that ended before the view was created send no notification."""
    view = replace_fields(VIEW, created=created, connections=ViewConnections(notify=("oncall",)))
    [finding] = told(spent({1: "50"}, view=view))
    assert channels == finding.channels
