from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from tests.bench.growth.pages import operations
from tests.bench.growth.year import SHOWN, Fleet, asked, measure, plotted, today

LIST = (resources.files("gateway.console") / "static/pages/list.mjs").read_text()


def test_benchmark_has_the_requests_of_every_console_page() -> None:
    """
    The benchmark has the requests of every page of the console. If a page is new, add its requests to `pages`.
    """
    assert set(re.findall(r'path: "([^"]+)"', LIST)) == {each.page for each in operations(today())}


@pytest.mark.bench
async def test_every_request_of_the_year_succeeds(tmp_path: Path) -> None:
    """Every request of the benchmark succeeds, including for days whose hours are already deleted."""
    fleet = Fleet(users=50, teams=10, models=20)
    year = await measure(tmp_path, fleet, calls=2_000, days=100, rounds=1, settles=False)
    table = year.table()
    print(f"\n{table}")
    assert len(table.splitlines()) == 3 + len(asked())
    plots = plotted([year])
    assert "ledger.sqlite, MB" in plots
    assert 2 + SHOWN == plots.count("<polyline")
