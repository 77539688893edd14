"""Links of sessions and runs to those that started them: aggregated costs follow them, and own costs do not change."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from spool.ledger.slices import SlicedLedger
from spool.ledger.work import WorkLimits, unit_digest_text
from spool.ledger.work_links import WorkUnitLink, WorkUnitLinks
from spool.record import NS, Inference
from spool.registry.roles import LedgerSlice, RoleFilter
from tests.rounds import IS_LONG, part
from tests.spool.digests import as_shown, stored_number
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger.test_delegation import ONE, THREE, TWO, Made, Vector, asked, made, orders, rows_of
from tests.spool.ledger.test_work import EVER
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

DAY = 24 * HOUR
SEEDS = range(200 if IS_LONG else 1)
FOUR, FIVE = (f"{number:08x}-0000-4000-8000-000000000000" for number in (4, 5))
FORKS = [
    Made("", "0.04"),
    Made("", "0.01", session="t"),
    Made("", "0.02", session="t"),
    Made("", "0.08", session="u"),
]
RUNS = [
    Made(ONE, "0.01"),
    Made(TWO, "0.02", session="t"),
    Made(THREE, "0.04", TWO, "t"),
    Made(FOUR, "0.08", THREE, "u"),
]
# Each case has calls, links of a child to its parent, and the expected aggregated costs.
CASES: Mapping[str, tuple[Sequence[Made], str, Mapping[str, str], Mapping[str, str]]] = {
    "a fork": (FORKS, "session", {"t": "s"}, {"s": "0.07", "t": "0.03", "u": "0.08"}),
    "a fork of a fork": (FORKS, "session", {"t": "s", "u": "t"}, {"s": "0.15", "t": "0.11", "u": "0.08"}),
    "two forks": (FORKS, "session", {"t": "s", "u": "s"}, {"s": "0.15", "t": "0.03", "u": "0.08"}),
    "a fork with agents": (RUNS, "session", {"t": "s"}, {"s": "0.15", "t": "0.14", "u": "0.08"}),
    "a run": (RUNS, "run", {TWO: ONE}, {ONE: "0.15", TWO: "0.14", THREE: "0.12", FOUR: "0.08"}),
    "a run without calls": (
        RUNS,
        "run",
        {TWO: FIVE},
        {ONE: "0.01", TWO: "0.14", THREE: "0.12", FOUR: "0.08", FIVE: "0.14"},
    ),
    "a stated parent stays": (
        RUNS,
        "run",
        {THREE: ONE},
        {ONE: "0.01", TWO: "0.14", THREE: "0.12", FOUR: "0.08"},
    ),
}


def link(unit: str, child: str, parent: str) -> WorkUnitLink:
    return WorkUnitLink(unit, stored_number(unit, child), unit, as_shown(unit, parent))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", part(ENGINES, every=2))
async def test_aggregated_costs_follow_parents(
    engine: str, case: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    Aggregated costs follow the links to parents in any order of calls and links, after a restart and a rebuild.
    Without the links, all is as before.
    """
    calls, unit, parents, expected = CASES[case]
    links = [link(unit, child, parent) for child, parent in parents.items()]
    for number, order in enumerate(orders(made(Vector(calls, {}, {})))[:4]):
        (directory := tmp_path / str(number)).mkdir()
        ledgers = Ledgers.of(engine, request, directory)
        ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR)), FakeLog()
        half = len(order) // 2
        log.add(order[:half], at=BEGIN)
        await ledger.catch_up(log)
        await ledger.apply_links(WorkUnitLinks(links))
        log.add(order[half:], at=BEGIN)
        await ledger.catch_up(log)
        own = await asked(ledger, unit)
        wanted = {as_shown(unit, name): Decimal(cost) for name, cost in expected.items()}
        for _ in range(2):
            found = await asked(ledger, unit, aggregated=True)
            assert wanted == {name: cost for name, cost in found.items() if name is not None}
            ledger = await ledgers.open(clock=FakeClock(BEGIN + HOUR))
            await ledger.rebuild(log)
            await ledger.catch_up(log)
            await ledger.apply_links(WorkUnitLinks(links))
        assert own == await asked(ledger, unit)
        await ledger.apply_links(WorkUnitLinks())
        (directory / "plain").mkdir()
        plain = Ledgers.of(engine, request, directory / "plain")
        never_linked = await plain.open(clock=FakeClock(BEGIN + HOUR))
        await never_linked.catch_up(log)
        for query in ({}, {"aggregated": True}):
            assert await asked(never_linked, unit, **query) == await asked(ledger, unit, **query)
        await ledgers.close()
        await plain.close()


Spent = tuple[str | None, str | None, str | None, int]  # session, run, parent and cost of a call
SESSIONS, RUNS_OF = [f"s{n}" for n in range(6)], [f"{n:08x}-0000-4000-8000-000000000000" for n in range(9)]


def by_hand(calls: Sequence[Spent], links: Sequence[WorkUnitLink], unit: str) -> dict[str, int]:
    """Return aggregated costs, found by walking up from each call."""
    stated = defaultdict[str, set[str]](set)
    sessions = defaultdict[str, set[str]](set)
    for session, run, parent, _ in calls:
        if run is not None:
            sessions[as_shown("run", run)] |= {as_shown("session", session)} if session else set()
            stated[as_shown("run", run)] |= {as_shown("run", parent)} if parent and parent != run else set()
    parents = {unit_digest_text("run", each.id): each.name for each in links if each.target == "run"}
    parents |= {run: min(names) for run, names in stated.items() if names}
    forks = {unit_digest_text("session", each.id): each.name for each in links if each.target == "session"}
    for run in sorted(parents):  # the smallest of a circle is its root
        if run in walk(parents, run):
            parents.pop(run)
    costs = defaultdict[str, int](int)
    for session, run, _, cost in calls:
        above = set(walk(parents, as_shown("run", run))) if run else set()
        units = above | ({as_shown("run", run)} if run else set())
        if unit == "session":
            units = {each for other in above for each in sessions[other]}
            units |= {as_shown("session", session)} if session else set()
            units |= {each for other in units for each in walk(forks, other)}
        for each in units:
            costs[each] += cost
    return dict(costs)


def walk(parents: Mapping[str, str], name: str) -> Iterator[str]:
    seen = set[str]()
    while (name := parents.get(name, "")) and name not in seen:
        yield name
        seen.add(name)


async def aggregated(ledger: Any, unit: str, *names: str) -> dict[str, int]:
    rows = await rows_of(ledger, unit, aggregated=True, include={unit: names} if names else {})
    return {row.group[0]: int(Decimal(row.cost)) for row in rows if row.group[0] is not None}


def some_links(chance: random.Random) -> Iterable[WorkUnitLink]:
    for unit, names in (("session", SESSIONS), ("run", RUNS_OF)):
        for child in chance.sample(names, chance.randrange(len(names))):
            yield link(unit, child, chance.choice(names))


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_trees_with_links(ledgers: Ledgers, seed: int) -> None:
    """Links and stated parents in random order, circles among them: each aggregated cost is that of the calls below."""
    chance, log = random.Random(seed), FakeLog()
    ledger = await ledgers.open(clock=FakeClock(BEGIN + HOUR))
    calls: list[Spent] = []
    for _ in range(6):
        new = [
            (
                chance.choice([None, *SESSIONS]),
                run := chance.choice([None, *RUNS_OF]),
                chance.choice([None, None, *RUNS_OF]) if run else None,
                2 ** chance.randrange(20),
            )
            for _ in range(chance.randrange(1, 12))
        ]
        log.add(
            [
                call(
                    id=(len(calls) + place).to_bytes(16, "big"),
                    session=session,
                    run=run,
                    parent_run=parent,
                    team=chance.choice(("ads", "search")),
                    estimated_cost=str(cost),
                    start_time=BEGIN * NS,
                )
                for place, (session, run, parent, cost) in enumerate(new)
            ],
            at=BEGIN,
        )
        calls += new
        await ledger.catch_up(log)
        links = WorkUnitLinks(some_links(chance))
        await ledger.apply_links(links)
        for unit in ("session", "run"):
            costs = by_hand(calls, links.links, unit)
            assert costs == await aggregated(ledger, unit)
            for name in chance.sample(sorted(costs), min(2, len(costs))):
                assert {name: costs[name]} == await aggregated(ledger, unit, name)
        ads = [
            spent
            for spent, record in zip(
                calls, (each for entry in log.entries for each in entry.records), strict=True
            )
            if isinstance(record, Inference) and record.team == "ads"
        ]
        slice = LedgerSlice(parts=((RoleFilter(dimension="team", values=("ads",)),),))
        seen = {"session": {as_shown("session", each[0]) for each in ads if each[0]}}
        seen["run"] = {as_shown("run", each[1]) for each in ads if each[1]}
        joined = [each for each in links.links if unit_digest_text(each.unit, each.id) in seen[each.unit]]
        for unit, names in seen.items():
            found = await aggregated(SlicedLedger(ledger, slice), unit)
            costs = by_hand(ads, joined, unit)
            assert {name: cost for name, cost in costs.items() if name in names} == found


def test_a_circle_of_links_is_cut_at_its_last_link() -> None:
    """Two gateways may store links that make a circle together. Then the last one is not used."""
    ring = [link("run", child, parent) for child, parent in ((ONE, TWO), (TWO, THREE), (THREE, ONE))]
    links = WorkUnitLinks(ring)
    assert ring[:2] == links.links
    assert links.can_make_cycle(ring[2])
    assert WorkUnitLinks([link("run", ONE, ONE)]).links == []
    assert links.data_version == WorkUnitLinks(ring[:2]).data_version


async def test_linked_parents_stay_listed(ledgers: Ledgers) -> None:
    """Both ends of a link are listed beyond their retention, so that each listed aggregated cost is whole."""
    clock, log = FakeClock(BEGIN), FakeLog()
    ledger = await ledgers.open(clock=clock, work=WorkLimits(retention_s=70.0 * DAY))
    names = ("parent", "child", "other")
    log.add([call(session=name, start_time=BEGIN * NS, estimated_cost="1") for name in names], at=clock.at)
    await ledger.catch_up(log)
    await ledger.apply_links(WorkUnitLinks([link("session", "child", "parent")]))
    clock.at += 80 * DAY
    await ledger.sum_up_and_delete_hours()
    parent, child = (as_shown("session", name) for name in names[:2])
    assert await asked(ledger, "session", **EVER) == {parent: 1, child: 1, "(other)": 1}
    assert await asked(ledger, "session", aggregated=True, **EVER) == {parent: 2, child: 1, "(other)": 1}
    await ledger.apply_links(WorkUnitLinks())
    log.add([call(start_time=int(clock.at) * NS)], at=clock.at)  # units expire when further hours become days
    await ledger.catch_up(log)
    clock.at += 80 * DAY
    await ledger.sum_up_and_delete_hours()
    assert {"(other)", None} == (await asked(ledger, "session", **EVER)).keys()


async def test_filter_by_many_runs_gets_the_right_result(ledgers: Ledgers) -> None:
    """
    A filter by more runs than a statement may have rows of constants gets the right result, with links and without.
    """
    log, names = FakeLog(), [f"{number:032x}" for number in range(700)]
    ledger = await ledgers.open(clock=FakeClock(BEGIN + HOUR))
    log.add(
        [
            call(
                id=number.to_bytes(16, "big"),
                session=None,
                run=name,
                parent_run=names[number - 1] if number % 2 else None,
                estimated_cost="1",
                start_time=BEGIN * NS,
            )
            for number, name in enumerate(names)
        ],
        at=BEGIN,
    )
    await ledger.catch_up(log)
    shown = [as_shown("run", name) for name in names]
    assert {name: 1 + (number + 1) % 2 for number, name in enumerate(shown)} == await aggregated(
        ledger, "run", *shown
    )
    await ledger.apply_links(WorkUnitLinks(link("run", name, names[0]) for name in names[2::2]))
    for unit in ("run", "session"):
        found = await aggregated(ledger, unit, *shown)
        assert found.get(shown[0]) == (700 if unit == "run" else None)


def test_a_long_chain_of_links_is_read_at_once() -> None:
    """
    A long chain of links is read at once. The work does not grow with the square of the number of links, in any
    order of the links.
    """
    times = dict[int, float]()
    for count in (1_000, 10_000):
        chain = [
            WorkUnitLink("run", number, "run", unit_digest_text("run", number - 1))
            for number in range(2, count + 2)
        ]
        for links in (chain, chain[::-1]):
            began = process_time()
            found = WorkUnitLinks([*links, WorkUnitLink("run", 1, "run", unit_digest_text("run", count + 1))])
            times[count] = max(process_time() - began, times.get(count, 0.0))
            assert {each.id for each in links} == {each.id for each in found.links}
    assert times[10_000] < 40 * times[1_000]
