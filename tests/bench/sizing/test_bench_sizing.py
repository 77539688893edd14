from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from spool.engines import POSTGRES
from tests.bench.appends.measuring import AppendFigures
from tests.bench.sizing.__main__ import DOCUMENT, FIGURES, appends_taken_over, computed, taken_over
from tests.bench.sizing.computing import figures_of, limits, needs
from tests.bench.sizing.shared import (
    LEAST_GATEWAYS,
    gateways_for,
    one_database,
    shared_figures_of,
    shared_limits,
    shared_needs,
)


def test_the_page_is_as_its_constants_say() -> None:
    """A changed constant or default must change the page in the same commit."""
    document = json.loads(FIGURES.read_text())
    text = DOCUMENT.read_text()
    again = computed(text, figures_of(document), shared_figures_of(document))
    assert again == text, "run python -m tests.bench.sizing"


def test_a_machine_twice_as_fast_needs_half_the_machines() -> None:
    figures = figures_of(json.loads(FIGURES.read_text()))
    slow = replace(figures, cpu_us={"100": 60.0, "10": 100.0, "1": 400.0})
    fast = replace(slow, cpu_us={"100": 30.0, "10": 50.0, "1": 200.0})
    assert "| 100,000 | 8.6 billion | 10 / 17 / 67 |" in needs(slow)
    assert "| 100,000 | 8.6 billion | 5 / 9 / 34 |" in needs(fast)


def test_limits_are_sorted_lowest_first() -> None:
    figures = figures_of(json.loads(FIGURES.read_text()))
    firsts = [int(line.split("|")[1].replace(",", "")) for line in limits(figures).splitlines()[2:]]
    assert sorted(firsts) == firsts
    assert len(firsts) == 6


def test_a_benchmark_gives_the_constants() -> None:
    """The constants are medians over the rounds of the target `tollhouse`. Rounds of other targets are ignored."""
    round_of = {"scenario": "unfamiliar-100x8-seed7", "target": "tollhouse", "cpu_us": 50.0}
    others = [
        round_of | {"target": "yardstick", "cpu_us": 1.0},
        round_of | {"scenario": "idle", "cpu_us": 2.0},
    ]
    measured = {
        "machine": {
            "processor": "P",
            "cores": 4,
            "python": "3.12",
            "commit": "c",
            "time": "2030-01-02T03:04:05Z",
        },
        "rounds": [round_of, round_of | {"cpu_us": 54.0}, round_of | {"cpu_us": 90.0}, *others],
    }
    before = json.loads(FIGURES.read_text())
    after = taken_over(before, measured)
    assert after["cpu_us"] == before["cpu_us"] | {"100": 54.0}
    assert after["time"] == "2030-01-02"
    assert after["record_bytes"] == before["record_bytes"]


def test_a_benchmark_of_appends_gives_the_constants_of_postgresql() -> None:
    """
    The constants are medians of one writer on PostgreSQL, by group size. How long the head is held is
    not measured here.
    """

    def turn(group: int, us: float, name: str = POSTGRES, writers: int = 1) -> dict[str, object]:
        figures = AppendFigures(
            name=name, writers=writers, group=group, records_per_s=1.0, writer_us=us, p50_ms=1.0, p99_ms=1.0,
            primary_us=us / 2, standby_us=us / 4, follow_us=us / 8,
        )  # fmt: skip
        return asdict(figures)

    measured = {
        "machine": {"processor": "P", "cores": 4, "python": "3.12", "commit": "c", "time": "2030-01-02T03:04:05Z"},
        "disk": {"record_bytes": 111, "id_bytes": 8.4},
        "rounds": [
            turn(100, 8.0), turn(100, 16.0), turn(100, 80.0), turn(4096, 4.0),
            turn(100, 1.0, name="files"), turn(100, 99.0, writers=3),
        ],
    }  # fmt: skip
    before = json.loads(FIGURES.read_text())
    after = appends_taken_over(before, measured)
    assert {"append_us": {"100": 16.0, "4096": 4.0}, "primary_us": {"100": 8.0, "4096": 2.0}} == {
        name: after["postgres"][name] for name in ("append_us", "primary_us")
    }
    shared = shared_figures_of(after)
    assert shared.follow_us == 2.0
    assert shared.record_bytes == 111
    assert shared.id_bytes == 8.4
    assert before["postgres"]["head_own_us"] == shared.head_own_us
    assert before["cpu_us"] == after["cpu_us"]
    assert "2030-01-02" == after["postgres"]["time"]


@pytest.mark.parametrize("name", ["limits", "needs", "shared limits", "shared needs"])
def test_missing_marker_in_the_page_is_an_error(name: str) -> None:
    text = DOCUMENT.read_text().replace(f"<!-- end: {name} -->", "")
    document = json.loads(FIGURES.read_text())
    with pytest.raises(Exception, match=name):
        computed(text, figures_of(document), shared_figures_of(document))


def test_the_head_is_held_for_the_trip_the_flush_and_every_record() -> None:
    """
    Records of other gateways count as well, so each gateway carries less if more gateways share a database.
    """
    shared = replace(
        shared_figures_of(json.loads(FIGURES.read_text())),
        trip_ms=1.0, flush_ms=2.0, head_own_us=4.0, head_foreign_us=1.0,
    )  # fmt: skip
    assert shared.hold_s(1_000, 1) == pytest.approx(0.007)
    assert shared.hold_s(1_000, 3) == pytest.approx(0.009)
    assert shared.head_at_most(3) > shared.head_at_most(10)
    assert shared.head(4_096, 3) > shared.head(100, 3)


def test_one_database_ends_where_its_head_is_busy() -> None:
    """Slower gateways mean more gateways. Each follows the others, so the head becomes the limit earlier."""
    document = json.loads(FIGURES.read_text())
    shared = shared_figures_of(document)
    fast = replace(figures_of(document), cpu_us={"100": 33.0, "10": 50.0, "1": 200.0})
    slow = replace(fast, cpu_us={"100": 99.0, "10": 150.0, "1": 600.0})
    assert one_database(fast, shared) > one_database(slow, shared)
    assert gateways_for(10, fast, shared) == LEAST_GATEWAYS
    assert gateways_for(100_000, slow, shared) > gateways_for(100_000, fast, shared)
    assert "| 1,000 | 1 | 3 |" in shared_needs(slow, shared)
    assert "one head: split the senders" in shared_needs(slow, shared).splitlines()[-1]
    with pytest.raises(ValueError, match="follows"):
        gateways_for(10_000_000, fast, shared)


def test_limits_of_a_shared_database_are_sorted_lowest_first() -> None:
    document = json.loads(FIGURES.read_text())
    lines = shared_limits(figures_of(document), shared_figures_of(document)).splitlines()[2:]
    firsts = [int(line.split("|")[1].replace(",", "")) for line in lines]
    assert sorted(firsts) == firsts
