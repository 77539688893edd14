"""The tables of the sizing page are those that its constants give."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.bench.sizing.__main__ import DOCUMENT, FIGURES, computed, taken_over
from tests.bench.sizing.computing import carried, figures_of, limits, needs


def test_the_page_is_as_its_constants_say() -> None:
    """A changed constant or default changes the page, in the same commit."""
    figures = figures_of(json.loads(FIGURES.read_text()))
    text = DOCUMENT.read_text()
    assert computed(text, figures) == text, "run python -m tests.bench.sizing"


def test_a_machine_twice_as_fast_needs_half_the_machines() -> None:
    figures = figures_of(json.loads(FIGURES.read_text()))
    slow = replace(figures, cpu_us={"100": 60.0, "10": 100.0, "1": 400.0}, workers_factor=1.0)
    fast = replace(slow, cpu_us={"100": 30.0, "10": 50.0, "1": 200.0})
    assert "| 1 | 10,000 / 6,000 / 1,500 |" in carried(slow)
    assert "| 1 | 20,000 / 12,000 / 3,000 |" in carried(fast)
    assert "| 100,000 | 8.6 billion | 10 / 17 / 67 |" in needs(slow)
    assert "| 100,000 | 8.6 billion | 5 / 9 / 34 |" in needs(fast)


def test_the_lowest_limit_stands_first() -> None:
    figures = figures_of(json.loads(FIGURES.read_text()))
    firsts = [int(line.split("|")[1].replace(",", "")) for line in limits(figures).splitlines()[2:]]
    assert sorted(firsts) == firsts
    assert len(firsts) == 6


def test_a_benchmark_gives_the_constants() -> None:
    """Medians of the server's own rounds; what else was measured stays out."""
    round_of = {"scenario": "100x8", "target": "tollhouse", "cpu_us": 50.0}
    others = [round_of | {"target": "yardstick", "cpu_us": 1.0}, round_of | {"scenario": "idle", "cpu_us": 2.0}]
    measured = {
        "machine": {"processor": "P", "cores": 4, "python": "3.12", "commit": "c", "time": "2030-01-02T03:04:05Z"},
        "rounds": [round_of, round_of | {"cpu_us": 54.0}, round_of | {"cpu_us": 90.0}, *others],
    }
    before = json.loads(FIGURES.read_text())
    after = taken_over(before, measured)
    assert after["cpu_us"] == before["cpu_us"] | {"100": 54.0}
    assert after["time"] == "2030-01-02"
    assert after["record_bytes"] == before["record_bytes"]


@pytest.mark.parametrize("name", ["limits", "carried", "needs"])
def test_a_page_without_a_place_is_told(name: str) -> None:
    text = DOCUMENT.read_text().replace(f"<!-- end: {name} -->", "")
    with pytest.raises(Exception, match=name):
        computed(text, figures_of(json.loads(FIGURES.read_text())))
