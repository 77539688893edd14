"""The detector of a wall clock that was moved."""

from __future__ import annotations

from gateway.money.insights.detectors.service import moved_clock
from tests.gateway.money.insights.examples import found


def test_a_moved_clock_is_an_insight() -> None:
    """
    The insight about a moved clock states the direction. If the clock is plausible, there is no insight.
    """
    [ahead] = found(moved_clock, clock_step_s=691_200.0)
    assert "691,200 s ahead of" in ahead.draft.description
    [behind] = found(moved_clock, clock_step_s=-86_400.0)
    assert "86,400 s behind" in behind.draft.description
    assert [] == found(moved_clock)
