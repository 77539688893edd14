"""Trees of any depth: each run has the cost of all runs below it, in a time that grows with the number of runs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from statistics import median
from time import process_time
from typing import Any

import pytest

from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostRow
from spool.ledger.slices import SlicedLedger
from spool.ledger.work import unit_digest_text
from spool.ledger.work_links import WorkUnitLinks
from spool.record import NS, Inference
from spool.registry.roles import LedgerSlice, RoleFilter
from tests.rounds import as_proof
from tests.spool.digests import as_shown
from tests.spool.ledger.engines import SQLITE, Ledgers
from tests.spool.ledger.test_delegation import rows_of
from tests.spool.ledger.test_parent_links import aggregated, by_hand, link
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

RUNS = 10_000
SHAPES: Mapping[str, Callable[[int], int | None]] = {
    "chain": lambda number: number - 1 if number else None,
    "fan": lambda number: 0 if number else None,
    # each second run is a leaf of the chain of the others
    "comb": lambda number: None if not number else number - 1 - (number + 1) % 2,
}
TEAMS = ("ads", "search")
MOST = (
    # maximum processor time as a multiple of that for own costs. With a row for each run and level, it was
    # 100 times and more
    15
)


def run_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def made(number: int, parent: int | None, session: str, cost: int, team: str | None = None) -> Inference:
    return call(
        id=number.to_bytes(16, "big"),
        session=session,
        run=run_id(number),
        parent_run=None if parent is None else run_id(parent),
        team=team,
        estimated_cost=str(cost),
        start_time=BEGIN * NS,
    )


async def counted(ledgers: Ledgers, calls: Sequence[Inference]) -> Ledger:
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR)), FakeLog()
    log.add(calls, at=BEGIN)
    await ledger.catch_up(log)
    return ledger


@pytest.mark.proof
@pytest.mark.parametrize("shape", SHAPES)
async def test_one_sender_delays_no_answer(ledgers: Ledgers, shape: str) -> None:
    """
    A chain, a fan and a comb of runs by one sender cost a few times what the same report costs without the runs
    below.
    """
    parents = [SHAPES[shape](number) for number in range(RUNS)]
    ledger = await counted(ledgers, [made(number, parent, "s", 1) for number, parent in enumerate(parents)])
    below = [1] * RUNS
    for number in reversed(range(1, RUNS)):
        below[parents[number] or 0] += below[number]
    assert {as_shown("run", run_id(number)): cost for number, cost in enumerate(below)} == await aggregated(
        ledger, "run"
    )
    session = as_shown("session", "s")
    assert {session: RUNS} == await aggregated(ledger, "session")
    deepest = as_shown("run", run_id(RUNS - 2))
    assert {deepest: below[-2]} == await aggregated(ledger, "run", deepest)
    top = await rows_of(ledger, "run", aggregated=True, top=3)
    largest = sorted(below, reverse=True)[:3]
    assert largest == sorted((int(Decimal(row.cost)) for row in top), reverse=True)[:3]
    if ledgers.engine == SQLITE:  # the work of a server is not in the time of this process
        for unit in ("run", "session"):
            for top_groups in (None, 100):
                assert await ratio(ledger, unit, top=top_groups) < MOST


async def ratio(ledger: Ledger, unit: str, **query: Any) -> float:
    """Return the processor time of aggregated costs, as a multiple of that of own costs."""
    times = defaultdict[bool, list[float]](list)
    for _ in range(3):
        for is_aggregated in (False, True):
            began = process_time()
            await rows_of(ledger, unit, aggregated=is_aggregated, **query)
            times[is_aggregated].append(process_time() - began)
    return median(times[True]) / median(times[False])


@pytest.mark.parametrize("seed", [1, *map(as_proof, (0, *range(2, 40)))])
async def test_random_forests(ledgers: Ledgers, seed: int) -> None:
    """
    Long branches, circles, runs in several sessions, and links between sessions and runs: everybody, a team, and a
    further group have the costs that a walk up from each call finds.
    """
    chance, count = random.Random(seed), 300
    calls = []
    for number in range(2 * count):
        run = number if number < count else chance.randrange(count)
        parent = chance.randrange(max(0, run - 4), run) if run and chance.random() < 0.97 else None
        if chance.random() < 0.01:
            parent = chance.randrange(count)
        session = f"s{run // chance.choice((1, 7))}"
        calls.append((session, run, parent, chance.randrange(1, 100), chance.choice(TEAMS)))
    records = [made(run, parent, session, cost, team) for session, run, parent, cost, team in calls]
    for number, record in enumerate(records):
        record.id = number.to_bytes(16, "big")
    ledger = await counted(ledgers, records)
    sessions = [call[0] for call in calls]
    links = [link("session", *chance.sample(sessions, 2)) for _ in range(60)]
    links += [link("run", *map(run_id, chance.sample(range(count), 2))) for _ in range(20)]
    in_use = WorkUnitLinks(links if seed else [])
    await ledger.apply_links(in_use)
    spent = [
        (session, run_id(run), None if parent is None else run_id(parent), cost)
        for session, run, parent, cost, _ in calls
    ]
    for unit in ("run", "session"):
        costs = by_hand(spent, in_use.links, unit)
        assert costs == await aggregated(ledger, unit)
        some = chance.sample(sorted(costs), 3)
        assert {name: costs[name] for name in some} == await aggregated(ledger, unit, *some)
    await check_teams(ledger, calls, in_use)


async def check_teams(ledger: Ledger, calls: Sequence[Any], unit_links: WorkUnitLinks) -> None:
    """By team, the whole tree counts. A person who sees one team has the tree of its calls."""
    for unit in ("run", "session"):
        rows: Sequence[CostRow] = await rows_of(ledger, unit, aggregated=True, include={"team": ("ads",)})
        trees = [
            (session, run_id(run), None if parent is None else run_id(parent), cost if team == "ads" else 0)
            for session, run, parent, cost, team in calls
        ]
        wanted = {name: cost for name, cost in by_hand(trees, unit_links.links, unit).items() if cost}
        assert wanted == {row.group[0]: int(Decimal(row.cost)) for row in rows}
    slice = LedgerSlice(parts=((RoleFilter(dimension="team", values=("ads",)),),))
    own = [
        (session, run_id(run), None if parent is None else run_id(parent), cost)
        for session, run, parent, cost, team in calls
        if team == "ads"
    ]
    seen = {"session": {as_shown("session", each[0]) for each in own}}
    seen["run"] = {as_shown("run", each[1]) for each in own}
    joined = [each for each in unit_links.links if unit_digest_text(each.unit, each.id) in seen[each.unit]]
    for unit, names in seen.items():
        found = await aggregated(SlicedLedger(ledger, slice), unit)
        costs = by_hand(own, joined, unit)
        assert {name: cost for name, cost in costs.items() if name in names} == found
