"""
Percentiles from counts per bucket lie within the bucket of the exact percentile, and close to it if
calls are spread.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.ledger.sums import LATENCY_EDGES_MS, percentile_ms


def counted(durations: Sequence[float]) -> list[int]:
    counts = [0] * (len(LATENCY_EDGES_MS) + 1)
    for duration in durations:
        counts[bisect_left(LATENCY_EDGES_MS, duration)] += 1
    return counts


def exact(durations: Sequence[float], percent: int) -> float:
    return sorted(durations)[-(-percent * len(durations) // 100) - 1]


@given(
    durations=st.lists(st.integers(0, 400_000), min_size=1, max_size=300),
    percent=st.sampled_from([50, 95, 99]),
)
def test_between_the_edges_of_the_exact_percentile(durations: list[int], percent: int) -> None:
    """
    The estimate lies between the edges of the bucket with the exact percentile. There is no estimate beyond
    the last edge.
    """
    place = bisect_left(LATENCY_EDGES_MS, exact(durations, percent))
    found = percentile_ms(counted(durations), percent)
    if place == len(LATENCY_EDGES_MS):
        assert found is None
    else:
        assert found is not None
        assert (0, *LATENCY_EDGES_MS)[place] <= found <= LATENCY_EDGES_MS[place]


@pytest.mark.parametrize("percent", [50, 95, 99])
def test_groups_whose_calls_took_as_long_as_calls_of_models_do(percent: int) -> None:
    """Half of the groups are within 10 % of the exact percentile, and all within 30 %."""
    rng, errors, shown = random.Random(14), [], set()
    for _ in range(60):
        middle, spread = rng.uniform(800, 15_000), rng.uniform(0.3, 0.9)
        durations = [middle * 2.718281828 ** rng.gauss(0, spread) for _ in range(2000)]
        found = percentile_ms(counted(durations), percent)
        if found is not None:
            errors.append(abs(found / exact(durations, percent) - 1))
            shown.add(found)
    assert median(errors) < 0.1
    assert max(errors) < 0.3
    assert len(shown) > 50


def test_nothing_timed() -> None:
    assert percentile_ms([0] * (len(LATENCY_EDGES_MS) + 1), 50) is None
    assert percentile_ms([], 50) is None
