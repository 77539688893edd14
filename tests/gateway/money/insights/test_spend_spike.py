"""The detector of days that cost far more than comparable days."""

from __future__ import annotations

from decimal import Decimal

from gateway.money.insights.detector_facts import DAY_S, PeriodSpend
from gateway.money.insights.detectors.spending import spend_spike
from tests.gateway.money.insights.examples import TODAY, found, impacts, spend

MONDAY = TODAY


def weeks(*, team: str = "search", factor: str = "1", days: int = 42) -> list[PeriodSpend]:
    """Create weekdays of $10 and weekend days of $1, up to yesterday."""
    return [
        spend(ago, team=team, cost=Decimal(factor) * (1 if _weekday(ago) >= 5 else 10))
        for ago in range(1, days + 1)
    ]


def _weekday(ago: int) -> int:
    return (int((TODAY - ago * DAY_S) // DAY_S) + 3) % 7


def test_the_rhythm_of_the_week_is_no_spike() -> None:
    """The cost of a Monday after a Sunday, and of a day that is not over, is no spike."""
    assert 0 == _weekday(0)
    assert [] == found(spend_spike, days=[*weeks(), spend(0, cost=Decimal(6))])


def test_spike_is_reported_with_its_excess_cost() -> None:
    """A Friday costs $45 where Fridays cost $10. Other teams do not matter."""
    [spike] = found(spend_spike, days=[*weeks(), *weeks(team="docs"), spend(3, cost=Decimal(35), model="o3")])
    assert "35.00" == spike.draft.cost_impact
    assert "Team search spent $45.00 on 18 Sep, but $10.00 was expected" == spike.draft.title
    assert "The largest part was o3" in spike.draft.description
    assert TODAY - 3 * DAY_S == spike.newest


def test_a_weekend_that_costs_as_much_as_a_weekday_is_a_spike() -> None:
    """A Saturday that costs as much as a usual Friday is a spike, because Saturdays usually cost less."""
    assert ["9.00"] == impacts(found(spend_spike, days=[*weeks(), spend(2, cost=Decimal(9))]))


def test_an_earlier_spike_does_not_hide_the_next() -> None:
    """An earlier expensive Friday does not hide a spike, because the median ignores it."""
    days = [*weeks(), spend(10, cost=Decimal(200)), spend(3, cost=Decimal(200))]
    assert ["200.00"] == impacts(found(spend_spike, days=days))


def test_days_that_follow_each_other_are_one_finding() -> None:
    """
    If the cost stays high over a weekend, this is one finding with its first day. It keeps its key the next day.
    """
    higher = [spend(ago, cost=Decimal(30)) for ago in (5, 4, 3)]
    [before] = found(spend_spike, days=[*weeks(), *higher])
    [after] = found(spend_spike, days=[*weeks(), *higher, spend(0, cost=Decimal(40))])
    assert before.key == after.key
    assert before.draft.cost_impact == "90.00"
    assert after.draft.cost_impact == "120.00"
    assert "on 4 days from 16 Sep to 21 Sep" in after.draft.title


def test_many_small_rises_show_in_the_sum() -> None:
    """No single team is unusual, but all teams together are."""
    teams = [spend for team in range(40) for spend in weeks(team=f"t{team}", factor="0.05")]
    rise = [spend(4, team=f"t{team}", cost=Decimal("0.9")) for team in range(40)]
    [spike] = found(spend_spike, days=[*teams, *rise])
    assert spike.draft.title.startswith("All traffic spent $56.00")


def test_a_young_server_waits() -> None:
    """With six days of data there are too few to compare. With eight days a spike is reported."""
    assert [] == found(spend_spike, days=[*weeks(days=6), spend(1, cost=Decimal(90))])
    assert ["90.00"] == impacts(found(spend_spike, days=[*weeks(days=10), spend(3, cost=Decimal(90))]))


def test_cents_are_no_spike() -> None:
    """A day that costs four times a tiny amount is no spike."""
    assert [] == found(spend_spike, days=[*weeks(factor="0.01"), spend(3, cost=Decimal("0.3"))])


def test_nothing_at_all() -> None:
    assert [] == found(spend_spike)
