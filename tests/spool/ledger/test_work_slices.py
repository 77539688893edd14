"""
A person with restricted access learns nothing of units of work from the calls of others: each answer is the recount of
the visible calls alone. So no difference of two answers contains another call either.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import OTHER
from spool.ledger.work import TREES, UNITS, RunLineage
from spool.record import NS, Inference
from spool.registry.roles import EXCEPT, IS, LedgerSlice, RoleFilter
from tests.rounds import IS_LONG, part
from tests.spool.digests import as_shown
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger.test_work import DAY, EVER, NAMES, corrected, cost_of, made_call, unit_of
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call

LOGS, ROLES_OF_LOG = (range(20), 10) if IS_LONG else (range(1), 2)  # 200 roles, or 2
VALUES = {
    "team": ("search", "ads", ""),
    "user": ("ada", "bob", "cleo", ""),
    "tag:service": ("web", "batch", ""),
    "status": ("ok", "error"),
}
ALWAYS = CostQuery(**EVER)
Sums = dict[tuple[str | None, ...], tuple[int, Decimal]]


def value_of(record: Inference, name: str) -> str:
    tag = name.removeprefix("tag:")
    found = getattr(record, name) if tag == name else record.tags.get(tag)
    return found or ""


def made_role(chance: random.Random) -> LedgerSlice:
    """Make the filters of one to three roles of a person."""

    def made_filter() -> RoleFilter:
        name = chance.choice([*VALUES])
        values = chance.sample(VALUES[name], chance.randrange(1, len(VALUES[name])))
        return RoleFilter(dimension=name, mode=chance.choice((IS, EXCEPT)), values=tuple(values))

    parts = [
        tuple(made_filter() for _ in range(chance.randrange(1, 4))) for _ in range(chance.randrange(1, 4))
    ]
    return LedgerSlice(parts=tuple(parts))


def owned(chance: random.Random, record: Inference) -> Inference:
    record.user = chance.choice(VALUES["user"]) or None
    if service := chance.choice(VALUES["tag:service"]):
        record.tags = {**record.tags, "service": service}
    return record


async def a_log(chance: random.Random, ledgers: Ledgers) -> tuple[Any, list[Inference]]:
    """Count calls and corrections of several teams, whose runs start each other. Return the calls as they are now."""
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 4 * DAY)), FakeLog()
    calls, added = dict[bytes, Inference](), list[Any]()
    for number in range(1, 160):
        if calls and chance.random() < 0.2:
            change = corrected(chance, calls[chance.choice([*calls])], number)
            calls[change.corrects] = owned(chance, change.after)
            added.append(change)
        else:
            record = owned(chance, made_call(chance, number))
            calls[record.id] = record
            added.append(record)
    log.add(added, at=BEGIN + 4 * DAY)
    await ledger.catch_up(log)
    return ledger, [*calls.values()]


def recounted(calls: Collection[Inference], group_of: Callable[[Inference], Collection[Any]]) -> Sums:
    counts, costs = Counter[Any](), defaultdict[Any, Decimal](Decimal)
    for record in calls:
        for group in group_of(record):
            counts[group] += 1
            costs[group] += cost_of(record)
    return {group: (counts[group], costs[group]) for group in counts}


class Tree:
    """The runs of some calls, as these calls state them."""

    def __init__(self, calls: Collection[Inference]) -> None:
        self.parents = dict[str, str]()
        self.sessions = defaultdict[str, set[str]](set)
        self.runs = set[str]()
        for record in calls:
            run, parent = unit_of(record, "run"), record.parent_run
            if run is None:
                continue
            self.runs.add(run)
            if session := unit_of(record, "session"):
                self.sessions[run].add(session)
            if parent and parent != record.run:
                number = as_shown("run", parent, session=record.session)
                self.parents[run] = min(number, self.parents.get(run, number))
        self.stated = dict(self.parents)
        for run in [*self.parents]:
            circle = [run]
            while (above := self.parents.get(circle[-1])) is not None and above not in circle:
                circle.append(above)
            if above == run == min(circle):
                del self.parents[run]

    def units_of(self, record: Inference, unit: str) -> set[str | None]:
        """Return the units to whose aggregated cost a call belongs. Runs without own calls are none of them."""
        units, above = {unit_of(record, unit)}, unit_of(record, "run")
        while above is not None and (above := self.parents.get(above)) is not None:
            units |= ({above} & self.runs) if unit == "run" else self.sessions[above]
        return units


async def sums_of(ledger: SlicedLedger, *by: str, **query: Any) -> Sums:
    rows = await ledger.costs(CostQuery(**{**EVER, "granularity": TOTAL, "group_by": by, **query}))
    return {row.group: (row.calls, Decimal(row.cost)) for row in rows}


@pytest.mark.proves("A person with restricted access sees other calls")
@pytest.mark.parametrize("seed", LOGS)
@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_each_answer_is_the_recount_of_the_visible_calls(ledgers: Ledgers, seed: int) -> None:
    """
    For a person with restricted access, each answer is a recount of the visible calls: every unit, by further
    dimensions, with filters, largest units, part of the time, and trees of runs.
    """
    chance = random.Random(seed)
    ledger, calls = await a_log(chance, ledgers)
    for _ in range(ROLES_OF_LOG):
        role = made_role(chance)
        own = [
            record
            for record in calls
            if role.has_call(lambda name, record=record: value_of(record, name))  # type: ignore[misc]
        ]
        sliced = SlicedLedger(ledger, role)
        for unit in UNITS:
            await check_unit(sliced, own, unit, chance)
        for unit in TREES:
            await check_aggregated(sliced, own, unit, chance)
        await check_lineage(sliced, calls, own)


async def check_unit(
    sliced: SlicedLedger, own: Sequence[Inference], unit: str, chance: random.Random
) -> None:
    further = chance.choice(("team", "user", "tag:service"))
    of_unit = recounted(own, lambda record: [(unit_of(record, unit),)])
    assert of_unit == await sums_of(sliced, unit)
    assert await sums_of(sliced, unit, further) == recounted(
        own, lambda record: [(unit_of(record, unit), value_of(record, further) or None)]
    )
    names = [as_shown(unit, f"{unit}-{number}", session="session-1") for number in range(NAMES[unit])]
    wanted = [*chance.sample(names, 2), "unknown", *([""] if chance.random() < 0.3 else [])]
    other = chance.choice([name for name in UNITS if name != unit])
    for mode in ("include", "exclude"):
        passing = [
            record for record in own if ((unit_of(record, unit) or "") in wanted) == (mode == "include")
        ]
        filters = {mode: {unit: tuple(wanted)}}
        assert recounted(passing, lambda _: [()]) == {
            group: sums for group, sums in (await sums_of(sliced, **filters)).items() if sums[0]
        }
        assert await sums_of(sliced, other, **filters) == recounted(
            passing, lambda record: [(unit_of(record, other),)]
        )
    top = await sums_of(sliced, unit, top=2)
    named = sorted(of_unit.keys() - {(None,)}, key=lambda group: (-of_unit[group][1], group))
    rest = recounted(
        [record for record in own if (unit_of(record, unit),) in named[2:]], lambda _: [(OTHER,)]
    )
    assert top == {group: of_unit[group] for group in of_unit if group in (*named[:2], (None,))} | rest
    day = {
        "since": datetime.fromtimestamp(BEGIN + DAY, UTC),
        "until": datetime.fromtimestamp(BEGIN + 2 * DAY, UTC),
    }
    of_day = [record for record in own if BEGIN + DAY <= (record.start_time or 0) / NS < BEGIN + 2 * DAY]
    assert await sums_of(sliced, unit, **day) == recounted(of_day, lambda record: [(unit_of(record, unit),)])


async def check_aggregated(
    sliced: SlicedLedger, own: Sequence[Inference], unit: str, chance: random.Random
) -> None:
    """
    The tree consists of the visible calls of the time and of the days around it. A run above a visible one is part of
    it only if it has visible calls itself.
    """
    day = {"since": datetime.fromtimestamp(BEGIN, UTC), "until": datetime.fromtimestamp(BEGIN + DAY, UTC)}
    of_day, of_days = (
        [record for record in own if (record.start_time or 0) / NS < BEGIN + days * DAY] for days in (1, 2)
    )
    tree = Tree(of_days)
    await check_tree(sliced, of_day, tree, unit, chance, **day)
    tree = Tree(own)
    await check_tree(sliced, own, tree, unit, chance)
    everything = recounted(own, lambda record: [(each,) for each in tree.units_of(record, unit)])
    named = sorted(everything.keys() - {(None,)}, key=lambda group: (-everything[group][1], group))
    for group in named[:3]:
        one = await sums_of(sliced, aggregated=True, include={unit: (str(group[0]),)})
        assert one == {(): everything[group]}
    top = await sums_of(sliced, unit, aggregated=True, top=2)
    assert top == {group: everything[group] for group in everything if group in (*named[:2], (None,))}


async def check_tree(
    sliced: SlicedLedger,
    counted: Sequence[Inference],
    tree: Tree,
    unit: str,
    chance: random.Random,
    **times: Any,
) -> None:
    """Each unit has its calls and those of the runs below it, also of calls with a further unit."""

    def groups(record: Inference) -> list[tuple[str | None]]:
        return [(each,) for each in tree.units_of(record, unit)]

    assert recounted(counted, groups) == await sums_of(sliced, unit, aggregated=True, **times)
    for name in chance.sample([name for name in NAMES if name not in TREES], 2):
        passing = [record for record in counted if unit_of(record, name) is not None]
        found = await sums_of(sliced, unit, aggregated=True, exclude={name: ("",)}, **times)
        assert recounted(passing, groups) == found


async def check_lineage(sliced: SlicedLedger, calls: Sequence[Inference], own: Sequence[Inference]) -> None:
    """The runs of a session and of a run, visible or not, as the visible calls state them."""
    tree = Tree(own)
    expected = {
        run: RunLineage(run, tree.stated.get(run), min(tree.sessions[run], default=None)) for run in tree.runs
    }
    for unit in TREES:
        names = sorted({name for record in calls if (name := unit_of(record, unit))})
        found = {
            each.run: each
            for each in await sliced.run_lineage(ALWAYS, unit, names, 10_000, includes_runs_below=True)
        }
        if unit == "run":
            assert found == expected
        assert found.items() <= expected.items()
    hidden = {unit_of(record, "run") for record in calls} - {unit_of(record, "run") for record in own}
    for run in filter(None, hidden):
        of_hidden = {
            each.run
            for each in await sliced.run_lineage(ALWAYS, "run", [run], 10_000, includes_runs_below=True)
        }
        assert run not in of_hidden


async def test_a_visible_run_under_a_hidden_one_is_a_root(ledgers: Ledgers) -> None:
    """
    A run of the person's team was started by a run of another team, which a run of the person's team started. The
    hidden run joins nothing: neither its id nor the cost below it appears.
    """
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + DAY)), FakeLog()
    given = (
        ("a", None, "search", "1"),
        ("b", "a", "ads", "2"),
        ("c", "b", "search", "4"),
        ("d", "c", "ads", "8"),
    )
    calls = [
        call(id=bytes([number]) * 16, session=f"of {run}", run=f"{number:032x}", parent_run=parent and
             f"{'abcd'.index(parent):032x}", team=team, estimated_cost=cost)
        for number, (run, parent, team, cost) in enumerate(given)
    ]  # fmt: skip
    log.add(calls)
    await ledger.catch_up(log)
    own = SlicedLedger(ledger, LedgerSlice(parts=((RoleFilter(dimension="team", values=("search",)),),)))
    a, b, c, d = (as_shown("run", f"{number:032x}") for number in range(4))
    of_a, of_c = (1, Decimal(1)), (1, Decimal(4))
    sessions = {(as_shown("session", "of a"),): of_a, (as_shown("session", "of c"),): of_c}
    for scope in (True, False):
        assert await sums_of(own, "run", aggregated=scope) == {(a,): of_a, (c,): of_c}
        assert await sums_of(own, "session", aggregated=scope) == sessions
    whole = SlicedLedger(ledger, LedgerSlice(parts=((),)))
    costs = {group[0]: sums[1] for group, sums in (await sums_of(whole, "run", aggregated=True)).items()}
    assert costs == {a: 15, b: 14, c: 12, d: 8}
    for run in (b, d, as_shown("run", "f" * 32)):  # the last one of these runs does not exist
        assert not await own.run_lineage(ALWAYS, "run", [run], 10, includes_runs_below=True)
        assert not await sums_of(own, aggregated=True, include={"run": (run,)})
    assert [RunLineage(c, b, as_shown("session", "of c"))] == await own.run_lineage(
        ALWAYS, "run", [c], 10, includes_runs_below=True
    )
