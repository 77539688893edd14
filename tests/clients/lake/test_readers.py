"""Another Parquet reader, polars, reads the same rows of a lake."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.bench.lakes.test_bench_two_gateways import read_by_polars
from tests.exporters.spools import StoppedClock, call
from tests.integration.lake.lakes import opened, query

pytestmark = pytest.mark.clients
AT_S = 1_790_000_000


async def test_polars_reads_a_lake(tmp_path: Path) -> None:
    """Sums are exact, and ids, UTC times and tags match, over several days and files."""
    paid: dict[str, Any] = {
        "cost": "0.000000000000000000000000001",
        "cost_source": "reported",
        "tags": {"a": "ü", "b": ""},
    }
    records = [call(n, start_time=(AT_S + n * 40_000) * 10**9, **paid) for n in range(1, 31)]
    clock = StoppedClock(AT_S + 40 * 86_400)
    async with opened(tmp_path / "data", clock) as house, house.forwarding(path=tmp_path / "lake"):
        await house.add([*records, call(31, shadow=True, **paid)])
        await house.until(queued=0)
    ((rows, spend, calls, tags),) = query(
        tmp_path / "lake",
        "SELECT count(*), sum(spend) FILTER (counted), sum(calls), sum(cardinality(tags)) FROM lake",
    )
    found = read_by_polars(f"{tmp_path}/lake/ai_telemetry/v1/*/*.parquet")
    expected = {"rows": rows, "ids": 31, "first": 1, "last": 31, "calls": calls, "tags": tags}
    assert {name: str(value) for name, value in expected.items()} == {name: found[name] for name in expected}
    assert spend == Decimal(found["spend"])
    assert found["first_at"].startswith("2026-09-22T01:20:00")
