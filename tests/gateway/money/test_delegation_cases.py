"""
The nine DELEGATION cases of AgentMeasure 0.4.5, and the split of own and aggregated costs of a2aproject/A2A#2121.

https://github.com/roy-tong/AgentMeasure, `conformance/vectors/delegation-001-003.json`. The published file is a draft
and no valid JSON, so its cases are transcribed here by hand. A case that expects FAIL describes a wrong program: its
vector has the right numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from time import process_time
from typing import NamedTuple

import pytest

from gateway.money.costs.work_tree import (
    MAX_LEVEL,
    RunNode,
    ancestor_runs,
    build_run_tree,
    nearest_listed_ancestors,
    parents_by_run,
)
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostRow
from spool.ledger.work import RunLineage
from tests.spool.digests import as_shown
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger.test_delegation import ONE, TWO, A, B, Made, Vector, asked, made, orders, rows_of
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog


class Shown(NamedTuple):
    """A run in the tree of its session: its parent, level, calls, delegations, own and aggregated cost."""

    parent: str | None
    level: int
    calls: int
    delegations: int
    own: str
    aggregated: str


DEEP = [f"run-{level:03}" for level in range(102)]
# Each case has the calls of its runs, and the tree that they make.
CASES: Mapping[str, tuple[Sequence[Made], Mapping[str, Shown]]] = {
    "001a: a delegation is no operation": (
        [Made("A", "0.01"), Made("A", "0.02"), Made("B", "0.04", "A")],
        {"A": Shown(None, 1, 2, 1, "0.03", "0.07"), "B": Shown("A", 2, 1, 0, "0.04", "0.04")},
    ),
    "001b: one delegation and one operation are not two operations": (
        [Made("A", "0.01"), Made("B", "0.04", "A")],
        {"A": Shown(None, 1, 1, 1, "0.01", "0.05"), "B": Shown("A", 2, 1, 0, "0.04", "0.04")},
    ),
    "001c: no delegation": ([Made("A", "0.01")], {"A": Shown(None, 1, 1, 0, "0.01", "0.01")}),
    "002a: a chain of three": (
        [Made("A", "0.01"), Made("B", "0.02", "A"), Made("C", "0.04", "B")],
        {
            "A": Shown(None, 1, 1, 1, "0.01", "0.07"),
            "B": Shown("A", 2, 1, 1, "0.02", "0.06"),
            "C": Shown("B", 3, 1, 0, "0.04", "0.04"),
        },
    ),
    "002b: a cycle is cut": (
        [Made(A, "0.02", B), Made(B, "0.03", A)],
        {A: Shown(None, 1, 1, 1, "0.02", "0.05"), B: Shown(A, 2, 1, 0, "0.03", "0.03")},
    ),
    "002c: the depth that is shown has a limit": (
        [Made(run, "0.01", DEEP[level - 1] if level else None) for level, run in enumerate(DEEP)],
        {
            run: Shown(
                DEEP[level - 1] if level else None,
                min(level + 1, MAX_LEVEL),
                1,
                int(level < len(DEEP) - 1),
                "0.01",
                str(Decimal("0.01") * (len(DEEP) - level)),
            )
            for level, run in enumerate(DEEP)
        },
    ),
    "003a: a parent's sum is labelled": (
        [Made("A", "0.02"), Made("B", "0.03", "A")],
        {"A": Shown(None, 1, 1, 1, "0.02", "0.05"), "B": Shown("A", 2, 1, 0, "0.03", "0.03")},
    ),
    "A2A 2121: own and aggregated apart, with two delegations": (
        [Made("A", "0.02"), Made("B", "0.03", "A"), Made("C", "0.05", "A"), Made("B", "0.01", "A")],
        {
            "A": Shown(None, 1, 1, 2, "0.02", "0.11"),
            "B": Shown("A", 2, 2, 0, "0.04", "0.04"),
            "C": Shown("A", 2, 1, 0, "0.05", "0.05"),
        },
    ),
}


def digest(run: str) -> str:
    return as_shown("run", run, session="s")


async def shown_tree(ledger: Ledger, session: str) -> Sequence[RunNode]:
    """Return the tree of a session's runs, as the page of one unit builds it."""
    lineage = await ledger.run_lineage(
        "session", [as_shown("session", session)], 1000, includes_runs_below=True
    )
    own: dict[str, CostRow] = {
        run: row for row in await rows_of(ledger, "run") if (run := row.group[0]) is not None
    }
    runs = {each.run: each.session for each in lineage}
    return build_run_tree(runs, own, parents_by_run(lineage), runs)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ENGINES)
async def test_delegation_cases(
    engine: str, case: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """In any order of the reports, with restarts: the tree, its counts and its costs. The total has each call once."""
    calls, expected = CASES[case]
    for number, order in enumerate(orders(made(Vector(calls, {}, {})))[:6]):
        (directory := tmp_path / str(number)).mkdir()
        ledgers = Ledgers.of(engine, request, directory)
        ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR)), FakeLog()
        for half in (order[: len(order) // 2], order[len(order) // 2 :]):
            log.add(half, at=BEGIN)
            ledger = await ledgers.open(clock=FakeClock(BEGIN + HOUR))
            await ledger.catch_up(log)
        nodes = await shown_tree(ledger, "s")
        found = {
            node.run: (node.parent, node.level, node.own.calls, len(node.below), Decimal(node.own.cost))
            for node in nodes
        }
        assert found == {
            digest(run): (each.parent and digest(each.parent), *each[1:4], Decimal(each.own))
            for run, each in expected.items()
        }
        aggregated = await asked(ledger, "run", aggregated=True)
        assert aggregated == {digest(run): Decimal(each.aggregated) for run, each in expected.items()}
        assert sum(Decimal(each.cost) for each in calls) == (await asked(ledger, "team"))[None]
        await ledgers.close()


def test_the_tree_of_a_long_chain() -> None:
    """Each function about a chain of runs takes a time that grows with its length: ten times for ten times the runs."""
    times = {count: min(tree_of_chain(count) for _ in range(3)) for count in (2_000, 20_000)}
    assert times[20_000] < 40 * times[2_000]


def tree_of_chain(count: int) -> float:
    """Return the processor time of the functions that make the page of a chain of runs."""
    runs = [f"run:{number:016x}" for number in range(1, count + 1)]
    lineage = [RunLineage(run, above, None) for run, above in zip(runs, [None, *runs[:-1]], strict=True)]
    lineage[0] = RunLineage(runs[0], runs[-1], None)  # a circle
    began = process_time()
    parents = parents_by_run(lineage)
    assert runs[:-1] == [*ancestor_runs(runs[:0:-1], parents)][::-1]
    assert dict.fromkeys(runs[1:], runs[0]) | {runs[0]: None} == nearest_listed_ancestors(
        runs, runs[:1], parents
    )
    shown = [runs[0], runs[-1]]
    assert [None, runs[0]] == [node.parent for node in build_run_tree(shown, {}, parents, {})]
    return process_time() - began


@pytest.mark.parametrize("engine", ENGINES)
async def test_003b_a_cost_counts_once(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """
    The parent's cost of 0.05 includes the child's 0.03, so both together cost 0.05 and not 0.08. Own costs add up.
    """
    ledgers = Ledgers.of(engine, request, tmp_path)
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR)), FakeLog()
    log.add(made(Vector([Made("A", "0.02"), Made("B", "0.03", "A")], {}, {})), at=BEGIN)
    await ledger.catch_up(log)
    assert sum((await asked(ledger, "run")).values()) == Decimal("0.05")
    assert sum((await asked(ledger, "run", aggregated=True)).values()) == Decimal("0.08")
    assert await asked(ledger, "team") == {None: Decimal("0.05")}
    await ledgers.close()


@pytest.mark.parametrize("engine", ENGINES)
async def test_003c_a_cost_is_traced_to_its_session(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    The child's session shows its two attempts, and the lineage leads from it to the session that delegated to it.
    """
    calls = [
        Made(ONE, "0.04", session="parent"),
        Made(TWO, "0.01", ONE, "session-abc"),
        Made(TWO, "0.02", ONE, "session-abc"),
    ]
    parent, child = (as_shown("session", name) for name in ("parent", "session-abc"))
    for number, order in enumerate(orders(made(Vector(calls, {}, {})))):
        (directory := tmp_path / str(number)).mkdir()
        ledgers = Ledgers.of(engine, request, directory)
        ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR)), FakeLog()
        for record in order:
            log.add([record], at=BEGIN)
            await ledger.catch_up(log)
        own = {parent: Decimal("0.04"), child: Decimal("0.03")}
        assert own == await asked(ledger, "session")
        assert {**own, parent: Decimal("0.07")} == await asked(ledger, "session", aggregated=True)
        levels = [(node.session, node.level, node.own.calls) for node in await shown_tree(ledger, "parent")]
        assert [(parent, 1, 1), (child, 2, 2)] == levels
        above = await ledger.run_lineage("session", [child], 10, includes_runs_below=False)
        assert {parent, child} == {each.session for each in above}
        await ledgers.close()
