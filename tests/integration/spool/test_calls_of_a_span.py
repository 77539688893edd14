"""How many functions of ours the way of a span calls: what a reader has to follow, and what each span costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.server.calls import least, measured

pytestmark = pytest.mark.anyio
MOST = 300


async def test_a_warm_span_calls_few_functions(tmp_path: Path) -> None:
    """
    From the bytes to the 2xx and the end of its commit, one span needs at most so many calls; who adds some
    looks for climbs to take away: `python -m tests.bench.server.calls -v` lists all.
    """
    rounds = await measured(tmp_path, warm=6, counted=8)
    called = least(rounds).request
    assert called.total() <= MOST, called.most_common(20)
