"""Values of fields that are returned with a page of a table."""

from __future__ import annotations

from spool.sql.lists import TOLD_S, CachedFieldValues
from tests.moved_clock import MovedClock


def test_field_values_are_cached_for_a_moment() -> None:
    """The values of each field are cached for TOLD_S and then read again."""
    clock = MovedClock()
    told = CachedFieldValues(clock.now)
    assert {} == told.recent_values()
    told.remember_values({"region": ["eu"]})
    clock.move(TOLD_S - 1)
    told.remember_values({"account": ["1"]})
    assert {"region": ["eu"], "account": ["1"]} == told.recent_values()
    clock.move(1)
    assert {"account": ["1"]} == told.recent_values()
