"""Percentiles of how long calls took, read from the ledger's counts by LATENCY_EDGES_MS. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from spool.ledger.sums import LATENCY_EDGES_MS


def percentile_ms(counts: Sequence[int], percent: int) -> int | None:
    """
    The lowest edge that this share of the timed calls did not exceed; the true percentile is at most that.

    None if no call is timed, or if the percentile lies beyond the last edge.
    """
    rank = -(-percent * sum(counts) // 100)
    reached = 0
    for edge, calls in zip(LATENCY_EDGES_MS, counts, strict=False):
        reached += calls
        if calls and reached >= rank:
            return edge
    return None
