"""The horizon between open and closed records."""

from __future__ import annotations

from spool.horizon import Horizon
from spool.record import AI_TELEMETRY
from tests.moved_clock import MovedClock


def test_the_horizon_stands_still_while_a_commit_is_made() -> None:
    """What a commit may still amend is not shown before that commit ended."""
    clock = MovedClock()
    horizon = Horizon(hold_s=10, clock=clock)
    horizon.freeze()
    horizon.thaw({AI_TELEMETRY: 5})
    assert {} == horizon.freeze()
    clock.move(20)
    assert 1 == horizon.closed_below(AI_TELEMETRY)
    horizon.thaw()
    assert 5 == horizon.closed_below(AI_TELEMETRY)


def test_a_failed_commit_opens_nothing() -> None:
    """Without numbers nothing becomes open, and nothing closes."""
    horizon = Horizon(hold_s=0, clock=MovedClock())
    horizon.begin({AI_TELEMETRY: 3})
    horizon.freeze()
    horizon.thaw()
    assert 3 == horizon.closed_below(AI_TELEMETRY)
