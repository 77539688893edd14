"""A short round of the benchmark of retention."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.retention import measured

pytestmark = pytest.mark.bench
RECORDS, SIZE = 2048, 16


@pytest.mark.parametrize("retains", [False, True])
def test_a_load_is_measured_with_and_without_retention(tmp_path: Path, retains: bool) -> None:
    """Retention deletes entries of the first load while the second one arrives."""
    figures = measured(tmp_path / "data", RECORDS, SIZE, retains=retains)
    assert figures.us > 0
    assert bool(figures.removed) == retains
