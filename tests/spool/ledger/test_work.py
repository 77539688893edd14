"""Sums of units of work are exact, and listed units, unlisted units and calls without a unit are all calls."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from spool.ledger import work
from spool.ledger.comparing import LedgerMender
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import OTHER, WIDTH
from spool.ledger.token_sums import TokenSum
from spool.ledger.work import UNITS, WorkLimits
from spool.record import NS, Correction, Inference
from spool.registry.roles import LedgerSlice, RoleFilter
from tests.rounds import IS_LONG, part
from tests.spool.digests import as_shown, stored_number
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, FakePrices, call

DAY = 24 * HOUR
EVER: Any = {
    "since": datetime.fromtimestamp(BEGIN - 200 * DAY, UTC),
    "until": datetime.fromtimestamp(BEGIN + 200 * DAY, UTC),
}
SEEDS = range(200 if IS_LONG else 1)
NAMES = {"session": 9, "run": 4, "repository": 3, "branch": 3, "commit": 6, "pull_request": 5, "ticket": 2}


def made_call(chance: random.Random, number: int) -> Inference:
    """Make a call that has each unit of work or lacks it."""
    names = {
        unit: f"{unit}-{chance.randrange(most)}" for unit, most in NAMES.items() if chance.random() < 0.7
    }
    session, run = names.pop("session", None), names.pop("run", None)
    parent = f"run-{chance.randrange(NAMES['run'])}" if chance.random() < 0.5 else None
    cost = str(Decimal(chance.randrange(1, 10**6)).scaleb(-6))
    return call(
        id=number.to_bytes(16, "big"),
        session=session,
        run=run,
        parent_run=parent,
        tags=names,
        request_model=chance.choice(("gpt-4o", "gpt-5")),
        team=chance.choice(("search", "ads", None)),
        start_time=(BEGIN + chance.randrange(3 * DAY)) * NS,
        input_tokens=chance.randrange(1000),
        status=chance.choice(("ok", "ok", "error", "cached")),
        estimated_cost=cost,
    )


def corrected(chance: random.Random, before: Inference, number: int) -> Correction:
    """Move a call to other units, with another cost."""
    after = made_call(chance, number)
    after.id, after.start_time = before.id, before.start_time
    return Correction(
        id=number.to_bytes(16, "big"), source="litellm", corrects=before.id, reason="late_usage", known_at=0,
        start_time=before.start_time or 0, before=before, after=after,
    )  # fmt: skip


def unit_of(record: Inference, unit: str) -> str | None:
    name = getattr(record, unit) if unit in ("session", "run") else record.tags.get(unit)
    return name and as_shown(unit, name, session=record.session)


def cost_of(record: Inference) -> Decimal:
    return Decimal(0) if record.status == "cached" else Decimal(record.estimated_cost or 0)


def by_hand(
    calls: Mapping[bytes, Inference], unit: str, *more: str
) -> dict[tuple[str | None, ...], tuple[int, Decimal]]:
    """Return calls and cost by unit and further fields."""
    counts, costs = Counter[Any](), defaultdict[Any, Decimal](Decimal)
    for record in calls.values():
        group = (unit_of(record, unit), *(getattr(record, name) for name in more))
        counts[group] += 1
        costs[group] += cost_of(record)
    return {group: (counts[group], costs[group]) for group in counts}


def by_tree(calls: Mapping[bytes, Inference], unit: str) -> dict[tuple[str | None, ...], tuple[int, Decimal]]:
    """Return calls and cost of each run or session with those of the runs that it started."""
    parents, sessions = dict[str, str](), defaultdict[str, set[str]](set)
    for record in calls.values():
        run, parent = unit_of(record, "run"), record.parent_run
        if run and (session := unit_of(record, "session")):
            sessions[run].add(session)
        if run and parent and parent != record.run:
            number = as_shown("run", parent, session=record.session)
            parents[run] = min(number, parents.get(run, number))
    for run in [*parents]:
        circle = [run]
        while (above := parents.get(circle[-1])) is not None and above not in circle:
            circle.append(above)
        if above == run == min(circle):
            del parents[run]
    counts, costs = Counter[Any](), defaultdict[Any, Decimal](Decimal)
    for record in calls.values():
        own, above = unit_of(record, unit), unit_of(record, "run")
        units = {own}
        while above is not None and (above := parents.get(above)) is not None:
            units |= {above} if unit == "run" else sessions[above]
        for each in units:
            counts[(each,)] += 1
            costs[(each,)] += cost_of(record)
    return {group: (counts[group], costs[group]) for group in counts}


async def asked(ledger: Ledger, *by: str, **query: Any) -> dict[tuple[str | None, ...], tuple[int, Decimal]]:
    rows = await ledger.costs(CostQuery(**EVER, granularity=TOTAL, group_by=by, **query))
    return {row.group: (row.calls, Decimal(row.cost)) for row in rows}


@pytest.mark.parametrize("by", ["session", "team"])
async def test_a_query_finds_its_unit_once(
    ledgers: Ledgers, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query derives its unit of work once, although each step of its evaluation needs the unit."""
    ledger = await ledgers.open(clock=FakeClock(BEGIN + 4 * DAY))
    log = FakeLog()
    log.add([made_call(random.Random(1), 1)])
    await ledger.catch_up(log)
    derive, derived = work.queried_unit, Counter[tuple[str, ...]]()

    def counted(group_by: Sequence[str], named: Iterable[str]) -> str | None:
        derived[tuple(group_by)] += 1
        return derive(group_by, named)

    monkeypatch.setattr(work, "queried_unit", counted)
    assert 1 == len(await asked(ledger, by))
    assert 1 == derived[(by,)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_units_are_exact_whatever_happens(ledgers: Ledgers, seed: int) -> None:
    """
    Calls, corrections, restarts, rebuilds, repairs and deleted hours in random order: each unit has exactly its calls,
    by each dimension and filter, and so have the calls without a unit.
    """
    chance = random.Random(seed)
    clock, log, calls = FakeClock(BEGIN + 4 * DAY), FakeLog(), dict[bytes, Inference]()
    ledger = await ledgers.open(clock=clock)
    number = 0

    async def restarted() -> None:
        nonlocal ledger
        ledger = await ledgers.open(clock=clock)

    async def later() -> None:
        clock.at += 40 * DAY
        await ledger.sum_up_and_delete_hours()

    async def rebuilt() -> None:
        await ledger.rebuild(log)

    async def mended() -> None:
        def lose_a_call(ledger_rows: LedgerRows) -> None:
            for start in ledger_rows.period_starts(HOUR, 0)[:1]:
                ledger_rows.add_sums(
                    HOUR,
                    [
                        (
                            start,
                            min(ledger_rows.dimension_set_numbers_in_period(HOUR, start)),
                            [-1] + [0] * (WIDTH - 1),
                        )
                    ],
                )
                ledger_rows.delete_unit_sums(start)

        await ledger._change_rows(lose_a_call)
        await LedgerMender(ledger=ledger, log=log, clock=clock).compare_and_repair()

    happenings = [restarted, rebuilt, later, mended]
    for _ in range(8 if IS_LONG else 4):
        added: list[Any] = []
        for _ in range(chance.randrange(1, 40) if calls else 20):
            number += 1
            if calls and chance.random() < 0.3:
                change = corrected(chance, calls[chance.choice([*calls])], number)
                calls[change.corrects] = change.after
                added.append(change)
            else:
                record = made_call(chance, number)
                calls[record.id] = record
                added.append(record)
        log.add(added, at=clock.at)
        await ledger.catch_up(log)
        if chance.random() < 0.7:
            await chance.choice(happenings)()
            await ledger.catch_up(log)
        unit = chance.choice([*UNITS])
        assert by_hand(calls, unit) == await asked(ledger, unit)
        assert by_hand(calls, unit, "team") == await asked(ledger, unit, "team")
        assert by_hand(calls, unit, "request_model") == {
            (second, first): sums
            for (first, second), sums in (await asked(ledger, "request_model", unit)).items()
        }
        await check_filters(ledger, calls, unit, chance)
        await check_trees(ledger, calls)
        await check_top(ledger, calls, unit)
        await check_slice(ledger, calls, unit)


async def check_trees(ledger: Ledger, calls: Mapping[bytes, Inference]) -> None:
    """The aggregated cost of a run or session has the calls of all runs below it, each once."""
    # do this as on every day, so that corrected parents are gone
    await ledger._change_rows(lambda rows: rows.drop_unused_units())
    for unit in ("run", "session"):
        expected = by_tree(calls, unit)
        assert expected == await asked(ledger, unit, aggregated=True)
        dearest = min(expected.keys() - {(None,)}, key=lambda group: (-expected[group][1], group))
        top = await asked(ledger, unit, aggregated=True, top=1)
        assert {dearest: expected[dearest]} == {
            group: sums for group, sums in top.items() if group != (None,)
        }
        filtered = await asked(ledger, aggregated=True, include={unit: (str(dearest[0]),)})
        assert filtered == {(): expected[dearest]}


async def check_slice(ledger: Ledger, calls: Mapping[bytes, Inference], unit: str) -> None:
    """A person with restricted access sees a unit with the calls of their slice alone."""
    slice = LedgerSlice(parts=((RoleFilter(dimension="team", values=("ads",)),),))
    query = CostQuery(**EVER, granularity=TOTAL, group_by=(unit,))
    rows = await SlicedLedger(ledger, slice).costs(query)
    own = {key: record for key, record in calls.items() if record.team == "ads"}
    assert by_hand(own, unit) == {row.group: (row.calls, Decimal(row.cost)) for row in rows}


async def check_filters(
    ledger: Ledger, calls: Mapping[bytes, Inference], unit: str, chance: random.Random
) -> None:
    """Filters by a unit select its calls, with or without the calls that have no unit."""
    expected = by_hand(calls, unit)
    known = sorted(group[0] for group in expected if group[0] is not None)
    wanted = {name for name in (*known, "") if chance.random() < 0.5} or {known[0]}
    chosen = {key: record for key, record in calls.items() if (unit_of(record, unit) or "") in wanted}
    others = {key: record for key, record in calls.items() if key not in chosen}
    filtered = {unit: tuple(wanted)}
    assert by_hand(chosen, unit, "team") == await asked(ledger, unit, "team", include=filtered)
    assert by_hand(others, unit) == await asked(ledger, unit, exclude=filtered)
    other = next(name for name in UNITS if name != unit)
    assert by_hand(chosen, other) == await asked(ledger, other, include=filtered)
    assert by_hand(others, other) == await asked(ledger, other, exclude=filtered)
    teams = defaultdict[Any, int](int)
    for record in chosen.values():
        teams[(record.team,)] += 1
    assert teams == {
        group: sums[0] for group, sums in (await asked(ledger, "team", include=filtered)).items()
    }


async def check_top(ledger: Ledger, calls: Mapping[bytes, Inference], unit: str) -> None:
    """The dearest units are listed, all others are one group, and all groups together are all calls."""
    expected = by_hand(calls, unit)
    top = await asked(ledger, unit, top=2)
    listed = {group: sums for group, sums in top.items() if group not in ((OTHER,), (None,))}
    named = sorted(expected.keys() - {(None,)}, key=lambda group: (-expected[group][1], group))
    assert listed == {group: expected[group] for group in named[:2]}
    assert expected.get((None,)) == top.get((None,))
    assert sum(sums[0] for sums in top.values()) == len(calls)
    assert sum(sums[1] for sums in top.values()) == sum(map(cost_of, calls.values()))


class Book(FakePrices):
    """A price book with one price for each input token."""

    def __init__(self, price: str) -> None:
        self._price = Decimal(price)

    def estimate_sum(self, total: TokenSum) -> str | None:
        return str(self._price * total.input_tokens) if total.response_model == "gpt-5" else None


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_recalculated_estimates_reach_each_unit(ledgers: Ledgers) -> None:
    """After prices changed, the cost of each unit is the sum of its calls at the new price, in hours and days."""
    chance, clock, log = random.Random(5), FakeClock(BEGIN + 4 * DAY), FakeLog()
    ledger = await ledgers.open(clock=clock)
    calls = {(number).to_bytes(16, "big"): made_call(chance, number) for number in range(200)}
    for number, record in enumerate(calls.values()):
        if number % 3 == 0:
            record.estimated_cost, record.cost_source = None, "none"
    log.add([*calls.values()], at=clock.at)
    await ledger.catch_up(log)
    for later, price in ((0, "0.002"), (70 * DAY, "0.0007")):
        clock.at += later
        await ledger.sum_up_and_delete_hours()
        await ledger.reprice(log, Book(price), since=EVER["since"])
        for record in calls.values():
            if record.request_model == "gpt-5":
                record.estimated_cost = str(Decimal(price) * (record.input_tokens or 0))
                record.cost_source = "estimated"
        for unit in UNITS:
            assert by_hand(calls, unit) == await asked(ledger, unit)


@pytest.mark.parametrize("seed", range(20 if IS_LONG else 1))
@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_beyond_the_limit_the_cheapest_become_one_group(ledgers: Ledgers, seed: int) -> None:
    """
    If there are more sessions than may be listed, the most expensive stay listed with all their calls, and the
    others become one group. A session that is unlisted is not listed again with a part of its calls, and nothing is
    lost.
    """
    chance, clock, log = random.Random(seed), FakeClock(BEGIN), FakeLog()
    limits = WorkLimits(ids_per_month=20)
    ledger = await ledgers.open(clock=clock, work=limits)
    calls = dict[bytes, Inference]()
    for day in range(12):
        clock.at = BEGIN + day * DAY + DAY - 1
        for _ in range(60):
            number = len(calls) + 1
            record = made_call(chance, number)
            session = chance.randrange(100)
            record.session, record.tags = f"s{session}", {}
            record.start_time = (BEGIN + day * DAY + chance.randrange(DAY // 2)) * NS
            # three sessions cost more than all others together
            record.estimated_cost = "1000" if session < 3 else record.estimated_cost
            record.status = "ok"
            calls[record.id] = record
        log.add([*calls.values()][-60:], at=clock.at)
        await ledger.catch_up(log)
        await ledger.sum_up_and_delete_hours()
        if chance.random() < 0.3:
            ledger = await ledgers.open(clock=clock, work=limits)
        expected = by_hand(calls, "session")
        found = await asked(ledger, "session")
        listed = {group: sums for group, sums in found.items() if group != (OTHER,)}
        assert listed == {group: expected[group] for group in listed}
        # the limit is checked after each tenth of it, so the list may exceed it by as much
        assert len(listed) <= limits.ids_per_month * 11 // 10
        assert len(calls) == sum(sums[0] for sums in found.values())
        assert sum(map(cost_of, calls.values())) == sum(sums[1] for sums in found.values())
    dearest = {(as_shown("session", f"s{session}"),) for session in range(3)}
    assert dearest <= listed.keys()
    for top in (3, 7):
        ranked = sorted(listed, key=lambda group: listed[group][1], reverse=True)
        shown = await asked(ledger, "session", top=top)
        assert {*ranked[:top]} == shown.keys() - {(OTHER,), (None,)}
        assert sum(sums[0] for sums in shown.values()) == len(calls)


async def test_costs_of_last_month_keep_a_unit_listed(ledgers: Ledgers) -> None:
    """A sender of random names cannot unlist a session that cost much last month and little in this month."""
    clock, log = FakeClock(BEGIN), FakeLog()
    ledger = await ledgers.open(clock=clock, work=WorkLimits(ids_per_month=20))
    for day, cost, names in ((0, "1000", ["dear"]), (20, "1", ["dear", *map(str, range(60))])):
        clock.at = BEGIN + day * DAY
        start = int(clock.at) * NS
        costs = ["0.01" if name == "dear" and day else cost for name in names]
        pairs = zip(names, costs, strict=True)
        log.add(
            [call(session=name, estimated_cost=cost, start_time=start) for name, cost in pairs], at=clock.at
        )
        await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    found = await asked(ledger, "session")
    assert found[(as_shown("session", "dear"),)] == (2, Decimal("1000.01"))
    assert found[(OTHER,)][0] == 43


async def test_units_that_lost_their_calls_do_not_count_toward_the_limit(ledgers: Ledgers) -> None:
    """Corrections may move all calls of a session to another one. Such a session does not unlist any other one."""
    log, made = FakeLog(), [call(id=bytes([number]) * 16, session=f"s{number}") for number in range(30)]
    ledger = await ledgers.open(clock=FakeClock(BEGIN), work=WorkLimits(ids_per_month=20))
    moved = [
        Correction(
            id=record.id[::-1], source="litellm", corrects=record.id, reason="late_usage", known_at=0,
            start_time=BEGIN * NS, before=record, after=call(id=record.id, session="s0"),
        )
        for record in made[15:]
    ]  # fmt: skip
    log.add([*made, *moved], at=BEGIN)
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    found = await asked(ledger, "session")
    assert {(as_shown("session", f"s{number}"),) for number in range(15)} == found.keys()


@pytest.mark.parametrize("seed", range(20 if IS_LONG else 1))
async def test_unlisted_runs_still_belong_to_the_runs_above_them(ledgers: Ledgers, seed: int) -> None:
    """The aggregated cost of a listed run has the calls of unlisted runs below it, and of their later runs."""
    chance, clock, log = random.Random(seed), FakeClock(BEGIN), FakeLog()
    limits = WorkLimits(ids_per_month=12)
    ledger = await ledgers.open(clock=clock, work=limits)
    calls = dict[bytes, Inference]()
    parents = {run: chance.randrange(run) for run in range(1, 60)}
    for day in range(8):
        clock.at = BEGIN + day * DAY + DAY - 1
        for _ in range(40):
            run, id = chance.randrange(60), len(calls).to_bytes(16, "big")
            calls[id] = call(
                id=id,
                session="s",
                run=f"run-{run}",
                parent_run=f"run-{parents[run]}" if run else None,
                start_time=(BEGIN + day * DAY + chance.randrange(DAY // 2)) * NS,
                estimated_cost=str(Decimal(chance.randrange(1, 10**6)).scaleb(-6)),
            )
        log.add([*calls.values()][-40:], at=clock.at)
        await ledger.catch_up(log)
        await ledger.sum_up_and_delete_hours()
        expected = by_tree(calls, "run")
        found = await asked(ledger, "run", aggregated=True)
        listed = {group: sums for group, sums in found.items() if group != (OTHER,)}
        assert listed
        assert day == 0 or (OTHER,) in found
        assert listed == {group: expected[group] for group in listed}


async def test_what_expires_stays_in_the_total(ledgers: Ledgers) -> None:
    """Sessions without calls for the retention become one group. One that had a call since then stays whole."""
    clock, log = FakeClock(BEGIN), FakeLog()
    ledger = await ledgers.open(clock=clock, work=WorkLimits(retention_s=70.0 * DAY))
    for day, session in ((0, "old"), (0, "busy"), (60, "busy")):
        clock.at = BEGIN + day * DAY
        log.add([call(session=session, start_time=int(clock.at) * NS)], at=clock.at)
        await ledger.catch_up(log)
    clock.at = BEGIN + 100 * DAY
    await ledger.sum_up_and_delete_hours()
    found = {group: sums[0] for group, sums in (await asked(ledger, "session")).items()}
    assert found == {(OTHER,): 1, (as_shown("session", "busy"),): 2}
    log.add([call(session="old", start_time=int(clock.at) * NS)], at=clock.at)
    await ledger.catch_up(log)
    assert (await asked(ledger, "session"))[(OTHER,)][0] == 2


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_unlisted_units_are_forgotten(ledgers: Ledgers) -> None:
    """
    Notes about unlisted sessions do not pile up: a session without calls for its retention and 93 days is forgotten. If
    it returns, it has all calls of a query's longest time range. A session that still has calls stays unlisted.
    """
    clock, log = FakeClock(BEGIN), FakeLog()
    ledger = await ledgers.open(clock=clock, work=WorkLimits(retention_s=70.0 * DAY))

    async def add_calls(*sessions: str) -> None:
        log.add([call(session=name, start_time=int(clock.at) * NS) for name in sessions], at=clock.at)
        await ledger.catch_up(log)

    async def is_unlisted(name: str) -> bool:
        return await ledger.is_unit_merged_into_other("session", stored_number("session", name))

    await add_calls("old", "busy")
    await ledger._change_rows(
        lambda rows: rows.merge_units_into_other("session", [stored_number("session", "busy")])
    )
    for _ in range(10):
        clock.at += 40 * DAY
        await add_calls("busy")
        await ledger.sum_up_and_delete_hours()
    assert await is_unlisted("busy") and not await is_unlisted("old")
    await add_calls("old")
    last_92_days = CostQuery(
        since=datetime.fromtimestamp(clock.at - 92 * DAY, UTC),
        until=EVER["until"] + timedelta(days=400),
        granularity=TOTAL,
        group_by=("session",),
    )
    found = {row.group: row.calls for row in await ledger.costs(last_92_days)}
    assert found == {(OTHER,): 3, (as_shown("session", "old"),): 1}
    ever = replace(last_92_days, since=EVER["since"])
    assert 13 == sum(row.calls for row in await ledger.costs(ever))


async def test_a_forgotten_unit_returns_with_all_its_sets(ledgers: Ledgers) -> None:
    """
    If a session that was forgotten returns, its new calls are listed, also those with the same further units as
    before.
    """
    clock, log = FakeClock(BEGIN), FakeLog()
    ledger = await ledgers.open(clock=clock, work=WorkLimits(retention_units_s=1000.0 * DAY))
    shop = {"repository": "acme/shop"}
    for day, tags in ((0, [shop]), (200, []), (500, []), (600, [{}, shop])):
        clock.at = BEGIN + day * DAY
        log.add(
            [call(session="back", tags=each, start_time=int(clock.at) * NS) for each in tags], at=clock.at
        )
        log.add([call(start_time=int(clock.at) * NS)], at=clock.at)
        await ledger.catch_up(log)
        await ledger.sum_up_and_delete_hours()
    assert await calls_by_session(ledger, 550, 630) == {as_shown("session", "back"): 2, None: 1}
    assert await calls_by_session(ledger, -1, 630) == {as_shown("session", "back"): 2, OTHER: 1, None: 4}


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_a_call_of_40_days_ago_changes_only_its_own_units(ledgers: Ledgers) -> None:
    """
    A call of 40 days ago is added to its session, its run, the runs above, its pull request and its month, and to
    nothing else.
    """
    chance, clock, log = random.Random(40), FakeClock(BEGIN + 45 * DAY), FakeLog()
    ledger = await ledgers.open(clock=clock)
    runs = ["0123456789abcdef", "123456789abcdef0", "23456789abcdef01", "3456789abcdef012"]
    calls = [
        call(
            id=number.to_bytes(16, "big"),
            session=f"s{place}",
            run=runs[place],
            parent_run=runs[place - 1] if place else None,
            tags={"pull_request": f"p{place % 2}"},
            start_time=(BEGIN + day * DAY) * NS,
            estimated_cost=str(chance.randrange(1, 100)),
        )
        for number, (place, day) in enumerate([(place, day) for place in range(4) for day in (2, 20, 44)] * 3)
    ]
    log.add(calls, at=clock.at)
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    questions = [(unit, is_tree) for unit in ("session", "run") for is_tree in (False, True)]
    questions += [("pull_request", False), ("ticket", False), ("team", False)]

    async def answers() -> dict[tuple[Any, ...], tuple[int, Decimal]]:
        return {
            (unit, is_tree, row.start.month, *row.group): (row.calls, Decimal(row.cost))
            for unit, is_tree in questions
            for row in await ledger.costs(
                CostQuery(**EVER, granularity="monthly", group_by=(unit,), aggregated=is_tree)
            )
        }

    before = await answers()
    late = call(
        id=b"late" * 4, session="s2", run=runs[2], parent_run=runs[1], tags={"pull_request": "p0"},
        start_time=(BEGIN + 5 * DAY) * NS, estimated_cost="1000",
    )  # fmt: skip
    log.add([late], at=clock.at)
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    month = datetime.fromtimestamp(BEGIN + 5 * DAY, UTC).month
    above = [("run", True, month, as_shown("run", run)) for run in runs[:3]]
    above += [("session", True, month, as_shown("session", f"s{place}")) for place in range(3)]
    own = [
        ("run", False, month, as_shown("run", runs[2])),
        ("session", False, month, as_shown("session", "s2")),
    ]
    shared = [
        ("pull_request", False, month, "p0"),
        ("ticket", False, month, None),
        ("team", False, month, None),
    ]
    after = await answers()
    assert {place for place in after if after[place] != before.get(place)} == {*above, *own, *shared}
    assert all(
        after[place] == (before[place][0] + 1, before[place][1] + 1000) for place in (*above, *own, *shared)
    )


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_a_late_call_of_an_unlisted_session_stays_unlisted(ledgers: Ledgers) -> None:
    """A session that was unlisted before a late call arrives is not listed again with this call alone."""
    clock, log = FakeClock(BEGIN), FakeLog()
    ledger = await ledgers.open(clock=clock, work=WorkLimits(ids_per_month=20))
    names = [f"s{number}" for number in range(40)]
    log.add(
        [call(session=name, start_time=BEGIN * NS, estimated_cost=name[1:]) for name in names], at=clock.at
    )
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    assert (await asked(ledger, "session")).keys() == {
        (OTHER,), *((as_shown("session", name),) for name in names[22:])
    }  # fmt: skip
    clock.at += 60 * DAY
    start = int(clock.at - 40 * DAY) * NS
    log.add([call(session="s0", start_time=start, estimated_cost="1000")], at=clock.at)
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    found = await asked(ledger, "session")
    assert found[(OTHER,)] == (23, sum(map(Decimal, range(22))) + 1000)
    assert (as_shown("session", "s0"),) not in found


async def calls_by_session(ledger: Ledger, first_day: int, last_day: int) -> dict[str | None, int]:
    since, until = (datetime.fromtimestamp(BEGIN + day * DAY, UTC) for day in (first_day, last_day))
    query = CostQuery(since=since, until=until, granularity=TOTAL, group_by=("session",))
    return {row.group[0]: row.calls for row in await ledger.costs(query)}
