"""
Percentiles of counts by edges: bounds that the exact percentile never exceeds, and no looser than one step.
"""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from spool.ledger.latency import percentile_ms
from spool.ledger.sums import LATENCY_EDGES_MS


@given(
    durations=st.lists(st.integers(0, 400_000), min_size=1, max_size=300),
    percent=st.sampled_from([50, 95, 99]),
)
def test_the_edge_above_the_exact_percentile(durations: list[int], percent: int) -> None:
    """The bound is the first edge at or above the duration that stands at the percentile's rank."""
    counts = [0] * (len(LATENCY_EDGES_MS) + 1)
    for duration in durations:
        counts[bisect_left(LATENCY_EDGES_MS, duration)] += 1
    exact = sorted(durations)[-(-percent * len(durations) // 100) - 1]
    edges = [edge for edge in LATENCY_EDGES_MS if edge >= exact]
    assert (edges[0] if edges else None) == percentile_ms(counts, percent)


def test_nothing_timed() -> None:
    """No call, no percentile."""
    assert percentile_ms([0] * (len(LATENCY_EDGES_MS) + 1), 50) is None
    assert percentile_ms([], 50) is None
