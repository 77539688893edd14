"""A short round of `python -m tests.bench.growth.year`."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from tests.bench.growth.pages import operations
from tests.bench.growth.year import SHOWN, Fleet, asked, measure, plotted, today

LIST = (resources.files("gateway.console") / "static/pages/list.mjs").read_text()


def test_every_page_is_asked_for() -> None:
    """A page that is added gets its questions here."""
    assert set(re.findall(r'path: "([^"]+)"', LIST)) == {each.page for each in operations(today())}


@pytest.mark.bench
async def test_a_year_is_asked_for(tmp_path: Path) -> None:
    """Every question of the bench is answered, over days whose hours are gone, too."""
    fleet = Fleet(users=50, teams=10, models=20)
    year = await measure(tmp_path, fleet, calls=2_000, days=100, rounds=1)
    table = year.table()
    print(f"\n{table}")
    assert len(table.splitlines()) == 3 + len(asked())
    plots = plotted([year])
    assert "ledger.sqlite, MB" in plots
    assert 2 + SHOWN == plots.count("<polyline")
