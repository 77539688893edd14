"""The comparison of two checkouts works if both are this checkout, and measures the same steps of both."""

from __future__ import annotations

import pytest

from tests.bench.before.comparison import HERE, compare


@pytest.mark.bench
def test_comparing_a_checkout_with_itself_finds_equal_sizes() -> None:
    found = compare(HERE, rounds=1, seconds=0.05)
    assert {"read", "price", "pack", "count", "send", "all", "bytes"} == set(found)
    before, now, ratio = found["bytes"]
    assert before == now
    assert ratio == 1.0
    assert all(each > 0 for figures in found.values() for each in figures)
