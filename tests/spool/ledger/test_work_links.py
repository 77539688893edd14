"""Under links, the sum of each unit is the sum over its calls, and all units together are all calls."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from spool.ledger.comparing import LedgerMender
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import OTHER, WIDTH
from spool.ledger.work import UNITS, WorkLimits
from spool.ledger.work_links import END, WorkUnitLink, WorkUnitLinks
from spool.record import NS, Inference
from spool.registry.roles import LedgerSlice, RoleFilter
from tests.rounds import IS_LONG, part
from tests.spool.digests import as_shown, stored_number
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger.test_work import EVER, NAMES, Book, corrected, cost_of, made_call, unit_of
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

DAY = 24 * HOUR
SEEDS = range(300 if IS_LONG else 1)
TARGETS = ("pull_request", "ticket")
Calls = Mapping[bytes, Inference]


def link_of(
    unit: str, name: str, target: str, to: str, *, repository: str = "", since: int = 0, until: int = END
) -> WorkUnitLink:
    number = stored_number(unit, name)
    if unit != "branch":
        return WorkUnitLink(unit, number, target, to)
    return WorkUnitLink(unit, number, target, to, stored_number("repository", repository), since, until)


def made_link(chance: random.Random) -> WorkUnitLink:
    unit = chance.choice(("session", "branch", "commit"))
    target = chance.choice(TARGETS)
    first, last = sorted((chance.randrange(-1, 4), chance.randrange(-1, 4)))
    return link_of(
        unit,
        f"{unit}-{chance.randrange(NAMES[unit])}",
        target,
        f"{target}-{chance.randrange(NAMES[target] + 3)}",  # some of these units are named by no call
        repository=f"repository-{chance.randrange(NAMES['repository'])}",
        since=BEGIN + first * DAY if chance.random() < 0.5 else 0,
        until=BEGIN + (last + 1) * DAY if chance.random() < 0.5 else END,
    )


def linked(record: Inference, unit: str, links: Sequence[WorkUnitLink]) -> str | None:
    """Return the unit of a call under links, found by trying each link."""
    own = unit_of(record, unit)
    if own is not None or unit not in TARGETS:
        return own
    at = (record.start_time or 0) // NS
    for narrow in ("commit", "session", "branch"):
        name = record.session if narrow == "session" else record.tags.get(narrow)
        number = stored_number(narrow, name) if name else None
        for link in links:
            in_repository = link.unit != "branch" or (
                "repository" in record.tags
                and link.repository == stored_number("repository", record.tags["repository"])
            )
            fits = (link.unit, link.id, link.target) == (narrow, number, unit)
            if fits and in_repository and link.since <= at < link.until:
                return link.name
    return None


def by_hand(
    calls: Calls, links: Sequence[WorkUnitLink], *by: str
) -> dict[tuple[str | None, ...], tuple[int, Decimal]]:
    """Return calls and cost by units and fields."""
    counts, costs = Counter[Any](), defaultdict[Any, Decimal](Decimal)
    for record in calls.values():
        group = tuple(linked(record, name, links) if name in UNITS else getattr(record, name) for name in by)
        counts[group] += 1
        costs[group] += cost_of(record)
    return {group: (counts[group], costs[group]) for group in counts}


async def asked(ledger: Ledger, *by: str, **query: Any) -> dict[tuple[str | None, ...], tuple[int, Decimal]]:
    rows = await ledger.costs(CostQuery(**EVER, granularity=TOTAL, group_by=by, **query))
    return {row.group: (row.calls, Decimal(row.cost)) for row in rows}


def changed_links(chance: random.Random, links: Sequence[WorkUnitLink]) -> list[WorkUnitLink]:
    """Add links that overlap no other one, or delete some."""
    if links and chance.random() < 0.4:
        return chance.sample(links, chance.randrange(len(links)))
    after = list(links)
    for new in (made_link(chance) for _ in range(chance.randrange(1, 6))):
        if new.since < new.until and not any(map(new.overlaps, after)):
            after.append(new)
    return after


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_sums_under_links_are_those_of_the_calls(ledgers: Ledgers, seed: int) -> None:
    """
    Under links, sums are those of the calls: calls, corrections, links, deleted links, restarts, rebuilds, repairs,
    new prices and deleted hours in random order. Each unit has exactly its own and its linked calls, each once, by
    each dimension, filter and slice.
    """
    chance = random.Random(seed)
    clock, log, calls = FakeClock(BEGIN + 4 * DAY), FakeLog(), dict[bytes, Inference]()
    ledger = await ledgers.open(clock=clock)
    links: list[WorkUnitLink] = []
    number = 0

    async def restarted() -> None:
        nonlocal ledger
        ledger = await ledgers.open(clock=clock)

    async def later() -> None:
        clock.at += 40 * DAY
        await ledger.sum_up_and_delete_hours()

    async def rebuilt() -> None:
        await ledger.rebuild(log)

    async def repaired() -> None:
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

    for _ in range(8 if IS_LONG else 4):
        added: list[Any] = []
        for _ in range(chance.randrange(1, 40)):
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
        if chance.random() < 0.8:
            links = changed_links(chance, links)
            await ledger.apply_links(WorkUnitLinks(links))
        if chance.random() < 0.7:
            await chance.choice((restarted, rebuilt, later, repaired))()
            await ledger.catch_up(log)
        for unit in TARGETS:
            await check_unit(ledger, calls, links, unit, chance)
        other = chance.choice([*UNITS])
        assert by_hand(calls, links, other) == await asked(ledger, other)


async def check_unit(
    ledger: Ledger, calls: Calls, links: Sequence[WorkUnitLink], unit: str, chance: random.Random
) -> None:
    expected = by_hand(calls, links, unit)
    assert expected == await asked(ledger, unit)
    assert by_hand(calls, links, unit, "team") == await asked(ledger, unit, "team")
    known = sorted(group[0] for group in expected if group[0] is not None)
    wanted = {name for name in (*known, "") if chance.random() < 0.5} or {""}
    chosen = {key: record for key, record in calls.items() if (linked(record, unit, links) or "") in wanted}
    others = {key: record for key, record in calls.items() if key not in chosen}
    filtered = {unit: tuple(wanted)}
    for by in ("session", "branch", unit):
        assert by_hand(chosen, links, by) == await asked(ledger, by, include=filtered)
        assert by_hand(others, links, by) == await asked(ledger, by, exclude=filtered)
    assert by_hand(chosen, links, "team") == await asked(ledger, "team", include=filtered)
    top = await asked(ledger, unit, top=2)
    assert sum(sums[0] for sums in top.values()) == len(calls)
    assert sum(sums[1] for sums in top.values()) == sum(map(cost_of, calls.values()))
    slice = LedgerSlice(parts=((RoleFilter(dimension="team", values=("ads",)),),))
    query = CostQuery(**EVER, granularity=TOTAL, group_by=(unit,))
    rows = await SlicedLedger(ledger, slice).costs(query)
    own = {key: record for key, record in calls.items() if record.team == "ads"}
    assert by_hand(own, links, unit) == {row.group: (row.calls, Decimal(row.cost)) for row in rows}


async def test_aggregated_costs_follow_links(ledgers: Ledgers) -> None:
    """A run that another run started is in the aggregated cost of that run, within the linked pull request."""
    clock, log = FakeClock(BEGIN + DAY), FakeLog()
    ledger = await ledgers.open(clock=clock)
    costs = (("one", "a", None, "1"), ("one", "b", "a", "2"), ("two", "c", None, "4"))
    log.add(
        [
            call(
                id=bytes([place]) * 16,
                session=session,
                run=run,
                parent_run=parent,
                start_time=BEGIN * NS,
                estimated_cost=cost,
                cost_source="estimated",
            )
            for place, (session, run, parent, cost) in enumerate(costs)
        ],
        at=clock.at,
    )
    await ledger.catch_up(log)
    await ledger.apply_links(WorkUnitLinks([link_of("session", "one", "pull_request", "p")]))
    runs = {run: (as_shown("run", run, session=session),) for session, run, _, _ in costs}
    for wanted, expected in (("p", {"a": "3", "b": "2"}), ("", {"c": "4"})):
        found = await asked(ledger, "run", include={"pull_request": (wanted,)}, aggregated=True)
        assert {runs[run]: Decimal(cost) for run, cost in expected.items()} == {
            group: cost for group, (_, cost) in found.items()
        }


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_new_prices_reach_linked_calls(ledgers: Ledgers) -> None:
    """After prices changed, a pull request has the new costs of its linked calls, in hours and days."""
    chance, clock, log = random.Random(7), FakeClock(BEGIN + 4 * DAY), FakeLog()
    ledger = await ledgers.open(clock=clock)
    calls = {number.to_bytes(16, "big"): made_call(chance, number) for number in range(200)}
    links = [
        link_of("session", f"session-{number}", "pull_request", f"linked-{number % 2}") for number in range(9)
    ]
    log.add([*calls.values()], at=clock.at)
    await ledger.catch_up(log)
    await ledger.apply_links(WorkUnitLinks(links))
    for later, price in ((0, "0.002"), (70 * DAY, "0.0007")):
        clock.at += later
        await ledger.sum_up_and_delete_hours()
        await ledger.reprice(log, Book(price), since=EVER["since"])
        for record in calls.values():
            if record.request_model == "gpt-5":
                record.estimated_cost = str(Decimal(price) * (record.input_tokens or 0))
                record.cost_source = "estimated"
        assert by_hand(calls, links, "pull_request") == await asked(ledger, "pull_request")


@pytest.mark.parametrize("seed", range(20 if IS_LONG else 1))
@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_beyond_the_limit_a_pull_request_stays_whole(ledgers: Ledgers, seed: int) -> None:
    """
    Of more units than may be listed, those that are listed have all their calls, also the linked ones, and a linked
    session stays listed. An unlisted pull request has none of its calls in the list.
    """
    chance, clock, log = random.Random(seed), FakeClock(BEGIN), FakeLog()
    limits = WorkLimits(ids_per_month=20)
    ledger = await ledgers.open(clock=clock, work=limits)
    calls, links = dict[bytes, Inference](), list[WorkUnitLink]()
    for day in range(12):
        clock.at = BEGIN + day * DAY + DAY - 1
        for _ in range(80):
            record = made_call(chance, len(calls) + 1)
            record.session = f"s{chance.randrange(100)}"
            record.tags = {"pull_request": f"p{chance.randrange(60)}"} if chance.random() < 0.5 else {}
            record.start_time = (BEGIN + day * DAY + chance.randrange(DAY // 2)) * NS
            record.status = "ok"
            calls[record.id] = record
        log.add([*calls.values()][-80:], at=clock.at)
        await ledger.catch_up(log)
        for _ in range(2):
            new = link_of("session", f"s{chance.randrange(100)}", "pull_request", f"p{chance.randrange(70)}")
            is_free = not any(map(new.overlaps, links))
            if is_free and not await ledger.is_unit_merged_into_other("session", new.id):
                links.append(new)
        if links and chance.random() < 0.3:
            links.remove(chance.choice(links))
        await ledger.apply_links(WorkUnitLinks(links))
        await ledger.sum_up_and_delete_hours()
        if chance.random() < 0.3:
            ledger = await ledgers.open(clock=clock, work=limits)
        for unit in ("session", "pull_request"):
            expected, found = by_hand(calls, links, unit), await asked(ledger, unit)
            listed = {group: sums for group, sums in found.items() if group != (OTHER,)}
            assert listed == {group: expected[group] for group in listed}
            assert (None,) not in expected or (None,) in listed
            assert len(calls) == sum(sums[0] for sums in found.values())
            assert sum(map(cost_of, calls.values())) == sum(sums[1] for sums in found.values())
        sessions = {group[0] for group in await asked(ledger, "session")}
        in_use = {record.session for record in calls.values()}
        assert {
            as_shown("session", name)
            for name in in_use
            if name and any(link.id == stored_number("session", name) for link in links)
        } <= sessions
    assert {(OTHER,)} <= (await asked(ledger, "pull_request")).keys()


async def test_a_linked_session_does_not_expire(ledgers: Ledgers) -> None:
    """
    A linked session is listed beyond its retention, so that its link can be deleted. A pull request without calls for
    its retention expires with its linked calls.
    """
    clock, log = FakeClock(BEGIN), FakeLog()
    limits = WorkLimits(retention_s=70.0 * DAY, retention_units_s=150.0 * DAY)
    ledger = await ledgers.open(clock=clock, work=limits)
    log.add([call(session=name, start_time=BEGIN * NS) for name in ("linked", "other")], at=clock.at)
    await ledger.catch_up(log)
    await ledger.apply_links(WorkUnitLinks([link_of("session", "linked", "pull_request", "p")]))
    clock.at += 100 * DAY
    await ledger.sum_up_and_delete_hours()
    found = await asked(ledger, "session")
    assert found.keys() == {(as_shown("session", "linked"),), (OTHER,)}
    assert (await asked(ledger, "pull_request"))[("p",)][0] == 1
    log.add([call(start_time=int(clock.at) * NS)], at=clock.at)
    await ledger.catch_up(log)
    clock.at += 100 * DAY
    await ledger.sum_up_and_delete_hours()
    assert {group: sums[0] for group, sums in (await asked(ledger, "pull_request")).items()} == {
        (OTHER,): 1,
        (None,): 2,
    }
    await ledger.apply_links(WorkUnitLinks())
    assert (await asked(ledger, "pull_request")).keys() == {(None,)}


def test_of_links_that_overlap_the_first_is_used() -> None:
    """No call is ever linked twice, in whatever way the links were stored."""
    first = link_of("branch", "b", "ticket", "T-1", repository="r", since=0, until=2 * DAY)
    second = link_of("branch", "b", "ticket", "T-2", repository="r", since=DAY, until=3 * DAY)
    third = link_of("branch", "b", "ticket", "T-3", repository="r", since=2 * DAY)
    links = WorkUnitLinks([first, second, third])
    assert [first, third] == links.links
    assert (
        links.data_version
        == WorkUnitLinks([third, first]).data_version
        != WorkUnitLinks([first]).data_version
    )
    assert WorkUnitLinks().data_version == 0
