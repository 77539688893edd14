"""
Slices of decoding: the event loop gets a turn after a number of bytes or after a time, whichever is reached first.
"""

from __future__ import annotations

import pytest

from gateway.normalise.payload.body_limits import SLICE_BYTES, SLICE_S, BodyReadLimits


def test_many_bytes_end_a_slice() -> None:
    allowance = BodyReadLimits()
    assert [allowance.count_work_and_check_turn(SLICE_BYTES // 2) for _ in range(4)] == [
        False,
        True,
        False,
        True,
    ]


def test_long_items_end_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that take long end a slice. The time between two slices does not count."""
    now = 100.0
    monkeypatch.setattr("gateway.normalise.payload.body_limits.time.monotonic", lambda: now)
    allowance, due = BodyReadLimits(), []
    for _ in range(3):
        due.append(allowance.count_work_and_check_turn(300))
        now += 2 * SLICE_S
        due.append(allowance.count_work_and_check_turn(300))
        now += 60
    assert due == [False, True, False, True, False, True]
