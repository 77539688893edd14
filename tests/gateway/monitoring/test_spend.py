"""
Cost and tokens on `/metrics`: a limited number of series, counters that only rise, and the cost of
the current month.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.monitoring import spend as module
from gateway.monitoring.metrics import ProcessMetrics
from gateway.monitoring.snapshot import Snapshot
from gateway.monitoring.spend import SpendSeries
from spool.errors import TotalsIncomplete
from spool.record import NS, Inference
from tests.gateway.monitoring.test_metrics import STATS, samples
from tests.hostile_names import HOSTILE_NAMES
from tests.spool.ledger.engines import POSTGRES, SQLITE, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

COST, MONTH = "tollhouse_cost_dollars_total", "tollhouse_month_cost_dollars"


@pytest_asyncio.fixture(params=[SQLITE, POSTGRES])
async def ledgers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledgers]:
    made = Ledgers.of(request.param, request, tmp_path)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def in_files(tmp_path: Path) -> AsyncIterator[Ledgers]:
    made = Ledgers(SQLITE, tmp_path, None)
    yield made
    await made.close()


def spent(cost: str, team: str | None = "a", at: int = BEGIN, **fields: object) -> Inference:
    return call(team=team, cost=cost, cost_source="reported", start_time=at * NS, **fields)


def shown(spend: SpendSeries, name: str, label: str = "team") -> dict[str, float]:
    """Return a metric as Prometheus reads it, summed by a label."""
    found: dict[str, float] = {}
    for (metric, labels), value in samples(
        ProcessMetrics().render(Snapshot(stats=STATS, spend=spend.counts))
    ).items():
        if metric == name:
            key = dict(labels)[label]
            found[key] = found.get(key, 0.0) + value
    return found


async def test_new_spend_is_counted_and_restart_counts_nothing_twice(ledgers: Ledgers) -> None:
    """
    New spend is counted, and a new series first shows 0 once. After a restart nothing counts twice, and the
    monthly cost is complete at once.
    """
    ledger, log, clock = await ledgers.open(), FakeLog(), FakeClock(BEGIN + HOUR)
    log.add([spent("1.5")])
    spend = SpendSeries(ledger, clock, top=5)
    with pytest.raises(TotalsIncomplete):  # the ledger has not caught up yet
        await spend.read_totals()
    await ledger.catch_up(log)
    await spend.read_totals()
    assert shown(spend, COST) == {"a": 0.0}
    assert shown(spend, MONTH) == {"a": 1.5}

    log.add([spent("2"), spent("4", team=None, input_tokens=7, output_tokens=2)])
    await ledger.catch_up(log)
    await spend.read_totals()
    assert ({"a": 2.0, "(unknown)": 0.0}) == shown(spend, COST)
    await spend.read_totals()
    await spend.read_totals()
    assert ({"a": 2.0, "(unknown)": 4.0}) == shown(spend, COST)
    tokens = samples(ProcessMetrics().render(Snapshot(stats=STATS, spend=spend.counts)))
    assert [2.0, 7.0] == sorted(
        value
        for (name, labels), value in tokens.items()
        if name == "tollhouse_tokens_total" and ("team", "(unknown)") in labels
    )

    again = await ledgers.open()
    await again.catch_up(log)
    later = SpendSeries(again, clock, top=5)
    await later.read_totals()
    assert {"a": 0.0, "(unknown)": 0.0} == shown(later, COST)
    assert {"a": 3.5, "(unknown)": 4.0} == shown(later, MONTH)


async def test_a_counter_waits_while_its_sum_is_lower(in_files: Ledgers) -> None:
    """
    A counter keeps its value while its sum is lower, because Prometheus would take a falling counter for a
    restart and count the whole value again.
    """
    ledger, log, clock = await in_files.open(), FakeLog(), FakeClock(BEGIN + HOUR)
    spend = SpendSeries(ledger, clock, top=5)
    counted = []
    for cost in ("1", "5", "-3", "1", "4"):
        log.add([spent(cost)])
        await ledger.catch_up(log)
        await spend.read_totals()
        counted.append((shown(spend, COST)["a"], shown(spend, MONTH)["a"]))
    assert [(0.0, 1.0), (5.0, 6.0), (5.0, 3.0), (5.0, 4.0), (7.0, 8.0)] == counted


async def test_late_records_of_the_last_month_still_count(in_files: Ledgers) -> None:
    """Late records of the last month still count, and the gauge shows the current month."""
    ledger, log, clock = await in_files.open(), FakeLog(), FakeClock(BEGIN + HOUR)
    spend = SpendSeries(ledger, clock, top=5)
    log.add([spent("1")])
    await ledger.catch_up(log)
    await spend.read_totals()
    clock.at = BEGIN + 31 * 24 * HOUR
    log.add([spent("2"), spent("4", at=int(clock.at))], at=clock.at)
    await ledger.catch_up(log)
    await spend.read_totals()
    assert shown(spend, COST) == {"a": 6.0}
    assert shown(spend, MONTH) == {"a": 4.0}


async def test_the_costly_have_names_and_keep_them(in_files: Ledgers) -> None:
    """
    Only the most expensive teams get a label. A team keeps its label. A team that becomes expensive later
    stays in "(other)".
    """
    ledger, log, clock = await in_files.open(), FakeLog(), FakeClock(BEGIN + HOUR)
    spend = SpendSeries(ledger, clock, top=2)
    log.add([spent("1", team="small"), spent("5", team="big"), spent("3", team="middle")])
    await ledger.catch_up(log)
    await spend.read_totals()
    assert {"big": 5.0, "middle": 3.0, "(other)": 1.0} == shown(spend, MONTH)
    assert 2 == spend.counts.largest_value_count_of_a_dimension
    log.add([spent("90", team="small")])
    await ledger.catch_up(log)
    await spend.read_totals()
    assert {"big": 0.0, "middle": 0.0, "(other)": 90.0} == shown(spend, COST)


async def test_sets_of_labels_are_bounded(in_files: Ledgers, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The number of label sets is limited, even at the first reading. The sum over all series stays complete.
    """
    monkeypatch.setattr(module, "MAX_SERIES", 4)
    ledger, log, clock = await in_files.open(), FakeLog(), FakeClock(BEGIN + HOUR)
    spend = SpendSeries(ledger, clock, top=50)
    log.add([spent("1", team=f"team {n}") for n in range(20)])
    await ledger.catch_up(log)
    await spend.read_totals()
    found = shown(spend, MONTH)
    assert len(found) == 4
    assert sum(found.values()) == 20.0
    assert found["(other)"] == 17.0


async def test_a_name_is_one_label_whatever_it_holds(in_files: Ledgers) -> None:
    """A quote or a line break in a name cannot start a new metric."""
    ledger, log = await in_files.open(), FakeLog()
    spend = SpendSeries(ledger, FakeClock(BEGIN + HOUR), top=2 * len(HOSTILE_NAMES))
    log.add([spent("1.5", team=name) for name in HOSTILE_NAMES])
    await ledger.catch_up(log)
    await spend.read_totals()
    found = shown(spend, MONTH)
    assert {name[:256] for name in HOSTILE_NAMES} == set(found) - {"other", "unknown"}
