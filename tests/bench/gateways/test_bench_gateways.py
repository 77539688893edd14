"""
A short round of the benchmark of gateways on one PostgreSQL. Only `python -m tests.bench.gateways` measures speed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench.gateways.__main__ import bench
from tests.bench.gateways.shared import quantile
from tests.spool.postgres_cluster import programs


@pytest.mark.bench
@pytest.mark.skipif(programs() is None, reason="PostgreSQL's server programs are not installed")
def test_a_short_round(tmp_path: Path) -> None:
    """
    Three gateways accept records and lose none: one on files, one on PostgreSQL, and one that joins the second.
    """
    words = ["10x8", "--gateways", "1", "--seconds", "0.2", "--ids", "5000", "--out", str(tmp_path)]
    done = CliRunner().invoke(bench, words)
    assert 0 == done.exit_code, done.output
    assert "| sqlite | 1 |" in done.output
    assert "| postgres | 1 |" in done.output
    assert "undelivered=0" in done.output
    assert "a gateway joins with 5,000 known ids" in done.output


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    two = [(0.001, 5.0), (0.01, 9.0), (0.1, 10.0)] * 2
    assert quantile(two, 0.5) == 0.001
    assert quantile(two, 0.9) == 0.01
    assert quantile(two, 0.99) == 0.1
    assert 0.0 == quantile([], 0.5)
