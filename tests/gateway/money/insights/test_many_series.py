"""The detector of cumulative counters whose number is near `spool.max_series`."""

from __future__ import annotations

from gateway.money.insights.detectors.records import many_series
from tests.gateway.money.insights.examples import found


def test_many_series_are_an_insight_before_one_is_forgotten() -> None:
    """The insight about many counters starts at 80 % of their limit. A log without a limit has none."""
    [insight] = found(many_series, series=800_000, max_series=1_000_000)
    assert insight.draft.title == "800,000 cumulative counters nearly reach the limit spool.max_series"
    assert "its increase in the meantime is not counted" in insight.draft.description
    assert not found(many_series, series=799_999, max_series=1_000_000)
    assert not found(many_series)
