"""Deletable entries, and the retry time for senders."""

from __future__ import annotations

import pytest

from spool.log.retention import (
    MOST_RETRY_S,
    UNKNOWN_RETRY_S,
    DeletableEntry,
    DrainRate,
    RouteReadingProgress,
    removable_entries,
)

ENTRIES = [
    DeletableEntry(1, 10, 100.0, 1000),
    DeletableEntry(11, 10, 200.0, 1000),
    DeletableEntry(21, 10, 300.0, 1000),
]


@pytest.mark.parametrize(
    ("limit", "before", "excess", "gone"),
    [
        (31, 0, 0, 0),
        (31, 250, 0, 2),
        (31, 999, 0, 3),
        (20, 999, 0, 1),
        (21, 999, 0, 2),
        (1, 999, 9999, 0),
        (31, 0, 1, 1),
        (31, 0, 1500, 2),
        (15, 0, 9999, 1),
    ],
)
def test_only_the_oldest_unneeded_entries_are_deleted(
    limit: int, before: float, excess: int, gone: int
) -> None:
    """
    Only the oldest entries are deleted: by age or because of excess size. Entries from the number `limit`
    on always stay.
    """
    assert ENTRIES[:gone] == removable_entries(
        ENTRIES, lowest_kept_number=limit, before_time=before, excess_bytes=excess
    )


def test_retry_after_follows_the_drain() -> None:
    """
    The faster readers free space, the shorter is the retry time. If they free nothing, it is the longest.
    Before the first measurement it is the default.
    """
    rate = DrainRate()
    assert UNKNOWN_RETRY_S == rate.retry_after_s(0.02)
    rate.add_sample(0, RouteReadingProgress(0, 100_000))
    assert UNKNOWN_RETRY_S == rate.retry_after_s(0.02)
    rate.add_sample(10, RouteReadingProgress(1000, 100_000))
    assert 20 == rate.retry_after_s(0.02)
    rate.add_sample(10.5, RouteReadingProgress(999_999, 100_000))
    assert 20 == rate.retry_after_s(0.02)
    rate.add_sample(20, RouteReadingProgress(10_000_000, 100_000))
    assert 1 == rate.retry_after_s(0.02)
    standing = DrainRate()
    for now in (0, 10):
        standing.add_sample(now, RouteReadingProgress(5, 100))
    assert MOST_RETRY_S == standing.retry_after_s(0.02)
