"""Percentiles of how long calls took, estimated from the ledger's counts by LATENCY_EDGES_MS. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log

from spool.ledger.sums import LATENCY_EDGES_MS


def percentile_ms(counts: Sequence[int], percent: int) -> int | None:
    """
    Estimate the percentile, between the same two edges as the true one. None if no call is timed, or beyond the last.

    Between two edges, each factor of time is taken to leave the same share of the calls that took longer: with calls
    at equal distances the percentiles of a long tail would be too high.
    """
    total = sum(counts)
    rank = -(-percent * total // 100)
    reached = 0
    for (low, high), calls in zip(pairwise((0, *LATENCY_EDGES_MS)), counts, strict=False):
        if calls and reached + calls >= rank:
            left, beyond = total - reached, max(total - reached - calls, 0.25)
            share = log(left / (total - rank + 0.5)) / log(left / beyond)
            return round(low * (high / low) ** share) if low else round(high * share)
        reached += calls
    return None
