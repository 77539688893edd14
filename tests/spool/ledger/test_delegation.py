"""Runs that start further runs: each call counts once in its own run, and once in each run above it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery, CostRow
from spool.record import NS, Inference
from tests.rounds import IS_LONG, part
from tests.spool.digests import as_shown
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

DAY = 24 * HOUR
ORDERS = 24
ONE, TWO, THREE = (f"{number:08x}-0000-4000-8000-000000000000" for number in (1, 2, 3))


class Made(NamedTuple):
    """Calls of a run in a session, with the run that started it."""

    run: str
    cost: str
    parent: str | None = None
    session: str = "s"
    day: int = 0
    ancestors: str | None = None


class Vector(NamedTuple):
    calls: Sequence[Made]
    own: Mapping[str, str]
    aggregated: Mapping[str, str]
    unit: str = "run"


def smallest_first(*names: str) -> list[str]:
    """Sort runs by their digests, because the smallest wins if reports contradict each other."""
    return sorted(names, key=lambda name: as_shown("run", name, session="s"))


A, B = smallest_first("A", "B")
CHAIN = [f"run-{level:02}" for level in range(40)]
VECTORS = {
    "delegation": Vector(
        [Made("A", "0.02"), Made("B", "0.03", "A")], {"A": "0.02", "B": "0.03"}, {"A": "0.05", "B": "0.03"}
    ),
    "background": Vector(
        [Made("B", "0.01", "A"), *[Made("A", "0.05")] * 10],
        {"A": "0.50", "B": "0.01"},
        {"A": "0.51", "B": "0.01"},
    ),
    "two levels": Vector(
        [Made("A", "0.25"), Made("B", "0.25", "A"), Made("C", "0.25", "B")],
        {"A": "0.25", "B": "0.25", "C": "0.25"},
        {"A": "0.75", "B": "0.50", "C": "0.25"},
    ),
    "two sessions": Vector(
        [Made(ONE, "0.04"), Made(TWO, "0.01", ONE, "t"), Made(TWO, "0.02", ONE, "t")],
        {"s": "0.04", "t": "0.03"},
        {"s": "0.07", "t": "0.03"},
        unit="session",
    ),
    "three sessions": Vector(
        [Made(ONE, "0.04"), Made(TWO, "0.01", ONE, "t"), Made(THREE, "0.02", TWO, "s")],
        {"s": "0.06", "t": "0.01"},
        {"s": "0.07", "t": "0.03"},
        unit="session",
    ),
    "circle": Vector(
        [Made(A, "0.02", B), Made(B, "0.03", A)], {A: "0.02", B: "0.03"}, {A: "0.05", B: "0.03"}
    ),
    "two parents": Vector(
        [Made(A, "1"), Made(B, "2"), Made("C", "0.10", A), Made("C", "0", B)],
        {A: "1", B: "2", "C": "0.10"},
        {A: "1.10", B: "2", "C": "0.10"},
    ),
    "forty levels": Vector(
        [Made(run, "0.01", CHAIN[level - 1] if level else None) for level, run in enumerate(CHAIN)],
        dict.fromkeys(CHAIN, "0.01"),
        {run: str(Decimal("0.01") * (40 - level)) for level, run in enumerate(CHAIN)},
    ),
    "late": Vector(
        [Made("A", "0.25"), Made("B", "0.20", "A"), Made("C", "0.25", "B"), Made("C", "0.05", "B", day=-40)],
        {"A": "0.25", "B": "0.20", "C": "0.30"},
        {"A": "0.75", "B": "0.50", "C": "0.30"},
    ),
    "no call of its own": Vector(
        [Made("B", "0.30", "A"), Made("C", "0.10", "A")],
        {"B": "0.30", "C": "0.10"},
        {"A": "0.40", "B": "0.30", "C": "0.10"},
    ),
    "no calls on two levels": Vector(
        [Made("A", "0.02"), Made("D", "0.30", "C", ancestors="B A"), Made("E", "0.10", "C", ancestors="B A")],
        {"A": "0.02", "D": "0.30", "E": "0.10"},
        {"A": "0.42", "B": "0.40", "C": "0.40", "D": "0.30", "E": "0.10"},
    ),
    "no calls between sessions": Vector(
        [Made(ONE, "0.04"), Made(THREE, "0.01", TWO, "t", ancestors=ONE), Made(THREE, "0.02", TWO, "t")],
        {"s": "0.04", "t": "0.03"},
        {"s": "0.07", "t": "0.03"},
        unit="session",
    ),
    "parent known later": Vector(
        [Made("B", "0.30"), Made("B", "0.10", "A"), Made("A", "1")],
        {"A": "1", "B": "0.40"},
        {"A": "1.40", "B": "0.40"},
    ),
}


def orders(calls: Sequence[Inference]) -> Sequence[Sequence[Inference]]:
    if not IS_LONG:
        return [calls, calls[::-1]]
    if len(calls) <= 3:
        return [*permutations(calls)]
    chance = random.Random(len(calls))
    return [calls, calls[::-1], *(chance.sample(calls, len(calls)) for _ in range(ORDERS - 2))]


def made(vector: Vector) -> list[Inference]:
    return [
        call(
            id=number.to_bytes(16, "big"),
            session=each.session,
            run=each.run,
            parent_run=each.parent,
            ancestors=each.ancestors,
            estimated_cost=each.cost,
            start_time=int(BEGIN + each.day * DAY) * NS,
        )
        for number, each in enumerate(vector.calls)
    ]


async def rows_of(ledger: Ledger, unit: str, **query: Any) -> Sequence[CostRow]:
    ever = {
        "since": datetime.fromtimestamp(BEGIN - 50 * DAY, UTC),
        "until": datetime.fromtimestamp(BEGIN + 2 * DAY, UTC),
    }
    asked = CostQuery(**{**ever, **query}, granularity=TOTAL, group_by=(unit,))
    return await ledger.costs(asked)


async def asked(ledger: Ledger, unit: str, **query: Any) -> dict[str | None, Decimal]:
    return {row.group[0]: Decimal(row.cost) for row in await rows_of(ledger, unit, **query)}


def by_digest(vector: Vector, costs: Mapping[str, str]) -> dict[str | None, Decimal]:
    return {as_shown(vector.unit, name, session="s"): Decimal(cost) for name, cost in costs.items()}


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("is_apart", [False, True], ids=["together", "apart"])
@pytest.mark.parametrize("engine", part(ENGINES, every=2))
async def test_own_and_aggregated_costs(
    engine: str, name: str, is_apart: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    A run's own costs and its costs with the runs below do not depend on the order of the reports, their number of
    requests, or restarts between them.
    """
    vector = VECTORS[name]
    for number, order in enumerate(orders(made(vector))):
        (directory := tmp_path / str(number)).mkdir()
        ledgers = Ledgers.of(engine, request, directory)
        ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR)), FakeLog()
        for records in [[record] for record in order] if is_apart else [order]:
            log.add(records, at=BEGIN)
            await ledger.catch_up(log)
            if is_apart and len(order) <= 3:
                ledger = await ledgers.open(clock=FakeClock(BEGIN + HOUR))
        assert by_digest(vector, vector.own) == await asked(ledger, vector.unit)
        assert by_digest(vector, vector.aggregated) == await asked(ledger, vector.unit, aggregated=True)
        whole = await asked(ledger, "team")
        assert sum(whole.values()) == sum(Decimal(each.cost) for each in vector.calls)
        await ledger._change_rows(lambda rows: rows.drop_unused_units())
        assert by_digest(vector, vector.aggregated) == await asked(ledger, vector.unit, aggregated=True)
        await ledger.rebuild(log)
        await ledger.catch_up(log)
        assert by_digest(vector, vector.aggregated) == await asked(ledger, vector.unit, aggregated=True)
        await ledgers.close()


async def test_a_circle_is_cut_at_the_same_run_in_each_time_range(ledgers: Ledgers) -> None:
    """
    A circle of runs is cut at the same run in each time range, even if this run has no calls in the range. No call
    counts twice in a run.
    """
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR)), FakeLog()
    log.add(made(Vector([Made(A, "0.02", B, day=-9), Made(B, "0.03", A), Made("C", "0.5", B)], {}, {})))
    await ledger.catch_up(log)
    a, b, c = (as_shown("run", name, session="s") for name in (A, B, "C"))
    since = datetime.fromtimestamp(BEGIN, UTC)
    found = await asked(ledger, "run", aggregated=True, since=since)
    assert found == {a: Decimal("0.53"), b: Decimal("0.53"), c: Decimal("0.5")}
    everything = await asked(ledger, "run", aggregated=True)
    assert everything == {a: Decimal("0.55"), b: Decimal("0.53"), c: Decimal("0.5")}


async def test_a_run_without_calls_is_forgotten_with_the_runs_below_it(ledgers: Ledgers) -> None:
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR)), FakeLog()
    log.add(made(Vector([Made("C", "0.02", "B", ancestors="A")], {}, {})))
    await ledger.catch_up(log)
    above = [as_shown("run", "B", session="s")]

    def forgotten(ledger_rows: LedgerRows) -> bool:
        ledger_rows.drop_unused_units()
        return not ledger_rows.run_lineage("run", above, 10, includes_runs_below=False)

    assert not await ledger._change_rows(forgotten)
    await ledger._change_rows(lambda rows: rows.delete_unit_sums(int(BEGIN) // HOUR * HOUR))
    assert await ledger._change_rows(forgotten)
