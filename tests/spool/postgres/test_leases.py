"""Several gateways on one database: their sessions, and which of them runs which task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from spool.errors import SpoolUnavailable
from spool.postgres.database import SESSION_S, Connection
from spool.postgres.leases import LET_GO_S, TRUST_S, PostgresLeases
from spool.postgres.migrations import migrate_schema
from tests.moved_clock import MovedClock
from tests.spool.postgres_cluster import Schema
from tests.waiting import limited

TASKS = ("insights", "ledger", "publisher", "retention")


class Node:
    """A gateway with a session that only the test renews."""

    def __init__(self, schema: Schema, clock: MovedClock, name: str) -> None:
        self.database = schema.database(clock=clock)
        self.leases = PostgresLeases(self.database, clock, name=name, version="1.2.3")
        self.running: set[str] = set()
        self.changed = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def work(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            self.running.add(name)
            self.changed.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.running.discard(name)
                self.changed.set()

        return run

    async def begin(self, *names: str) -> None:
        """Start tasks. From now on only the test renews the session."""
        self.tasks += [
            asyncio.create_task(self.leases.run_while_leased(name, self.work(name))) for name in names
        ]
        await asyncio.sleep(0)
        assert self.leases._keeper is not None
        self.leases._keeper.cancel()
        await asyncio.gather(self.leases._keeper, return_exceptions=True)
        await self.look()

    async def look(self) -> None:
        await self.leases.renew_session()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def until_running(self, *names: str) -> None:
        async with limited():
            while self.running != set(names):
                self.changed.clear()
                self.leases._asked.set()  # the gateway checks its leases at once
                await self.changed.wait()

    async def close(self) -> None:
        await self.leases.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.database.close()


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


Opener = Callable[[str], Node]


@pytest.fixture
async def node(fresh_schema: Schema, clock: MovedClock) -> AsyncIterator[Opener]:
    """Return a function that creates gateways on one database."""
    nodes: list[Node] = []

    def make(name: str) -> Node:
        nodes.append(Node(fresh_schema, clock, name))
        return nodes[-1]

    first = make("nobody")
    await migrate_schema(first.database)
    yield make
    for each in nodes:
        await each.close()


async def test_a_gateway_alone_runs_everything(node: Opener) -> None:
    """A single gateway runs all tasks right after its start, and the list of nodes shows them."""
    alone = node("a")
    await alone.begin(*TASKS)
    assert set(TASKS) == alone.running
    (shown,) = await alone.leases.node_states()
    assert shown.name == "a"
    assert shown.version == "1.2.3"
    assert shown.is_live is True
    assert shown.is_this is True
    assert shown.leases == TASKS


async def test_each_task_runs_on_one_gateway(node: Opener, clock: MovedClock) -> None:
    """Each task runs on one gateway. A later gateway gets its share one task at a time, and keeps it."""
    first, second = node("a"), node("b")
    await first.begin(*TASKS)
    await second.begin(*TASKS)
    assert set(TASKS) == first.running
    assert second.running == set()
    shares = []
    for _ in range(4):
        for _ in range(round(LET_GO_S / 2)):
            clock.move(2)
            await first.look()
            await asyncio.gather(*first.leases._going.values())
            await second.look()
            assert not first.running & second.running
        shares.append((len(first.running), len(second.running)))
    assert [(3, 1), (2, 2), (2, 2), (2, 2)] == shares


async def test_task_is_given_only_to_a_gateway_that_has_it(node: Opener, clock: MovedClock) -> None:
    """Routes of another configuration are not given to gateways without them."""
    first, second = node("a"), node("b")
    await first.begin(*TASKS)
    await second.begin("other")
    for _ in range(10):
        clock.move(2)
        await first.look()
        await second.look()
    assert set(TASKS) == first.running
    assert second.running == {"other"}


async def test_tasks_of_a_dead_gateway_move_when_its_session_ends(node: Opener, clock: MovedClock) -> None:
    """Another gateway takes over the tasks of a dead gateway when its session ends, and not before."""
    first, second = node("a"), node("b")
    await first.begin(*TASKS)
    await second.begin(*TASKS)
    for moved_s in (TRUST_S / 2, SESSION_S - TRUST_S / 2 - 0.1):
        clock.move(moved_s)
        await second.look()
    assert set() == second.running
    clock.move(0.2)
    await second.look()
    assert set(TASKS) == second.running
    assert [("a", False), ("b", True)] == [
        (one.name, one.is_live) for one in await second.leases.node_states()
    ]


async def test_a_gateway_that_was_frozen_begins_a_new_session(node: Opener, clock: MovedClock) -> None:
    """
    A frozen gateway ends its tasks, even if no other gateway took them, because an old session never continues.
    """
    frozen = node("a")
    await frozen.begin(*TASKS)
    before = frozen.leases.session
    clock.move(TRUST_S)
    await frozen.look()
    assert before != frozen.leases.session
    assert set() == frozen.running
    clock.move(SESSION_S - TRUST_S + 0.1)
    await frozen.look()
    assert set(TASKS) == frozen.running


async def test_operator_request_on_another_gateway_wakes_the_holder(node: Opener) -> None:
    """An operator may use any gateway. The gateway that runs the route checks within a second, once."""
    first, second = node("a"), node("b")
    woken: list[str] = []
    run = first.leases.run_while_leased("up/a", first.work("up/a"), wake=lambda: woken.append("up/a"))
    first.tasks.append(asyncio.create_task(run))
    await first.begin("ledger")
    await second.leases.wake_tasks("up/a")
    await second.leases.wake_tasks("nowhere/a")
    await first.look()
    await first.look()
    assert ["up/a"] == woken


async def test_a_stop_hands_over_at_once(node: Opener) -> None:
    """A stop hands tasks over at once, because no gateway waits for a session that was closed."""
    first, second = node("a"), node("b")
    await first.begin(*TASKS)
    await second.begin(*TASKS)
    await first.leases.close()
    await asyncio.sleep(0)
    assert set() == first.running
    await second.look()
    assert set(TASKS) == second.running


async def test_a_stop_during_the_first_look_hands_over_at_once(node: Opener) -> None:
    """A session that the database already has, but whose answer was not awaited, ends with the stop."""
    first, second = node("a"), node("b")
    first.tasks += [
        asyncio.create_task(first.leases.run_while_leased(name, first.work(name))) for name in TASKS
    ]
    for _ in range(5):  # the look is on its thread now, and its answer cannot have arrived
        await asyncio.sleep(0)
    await first.leases.close()
    assert not any(found.is_live for found in await second.leases.node_states() if found.name == "a")
    await second.begin(*TASKS)
    assert set(TASKS) == second.running


async def test_without_the_database_nothing_runs_for_long(
    node: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the database, a gateway's tasks soon end, because it cannot know which gateway has them by now."""
    cut_off = node("a")
    cut_off.tasks.append(
        asyncio.create_task(cut_off.leases.run_while_leased("ledger", cut_off.work("ledger")))
    )
    await cut_off.until_running("ledger")

    @asynccontextmanager
    async def no_database() -> AsyncIterator[None]:
        async def fail(work: object) -> None:
            raise SpoolUnavailable("the database cannot be reached")

        with monkeypatch.context() as patch:
            patch.setattr(cut_off.database.control, "run", fail)
            yield

    async with no_database():
        clock.move(TRUST_S + 1)
        await cut_off.until_running()
    clock.move(SESSION_S)
    await cut_off.until_running("ledger")


async def test_a_database_that_does_not_answer_ends_the_session_in_time(
    node: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the database does not answer, the session ends in time, because other gateways may then take over. The
    task ends before the database answers, and starts again afterwards.
    """
    alone, is_asked, answers = node("a"), asyncio.Event(), asyncio.Event()
    alone.tasks.append(asyncio.create_task(alone.leases.run_while_leased("ledger", alone.work("ledger"))))
    await alone.until_running("ledger")
    run = alone.database.control.run

    async def late(work: Callable[[Connection], Any]) -> Any:
        is_asked.set()
        await answers.wait()
        return await run(work)

    monkeypatch.setattr(alone.database.control, "run", late)
    alone.leases._asked.set()
    await is_asked.wait()
    clock.move(TRUST_S)
    await alone.until_running()
    clock.move(SESSION_S)
    answers.set()
    await alone.until_running("ledger")


async def test_what_a_gateway_runs_no_more_another_one_may(node: Opener) -> None:
    """A route that left one gateway's configuration is free for gateways that still have it."""
    first, second = node("a"), node("b")
    await first.begin("ledger", "up/a")
    await second.begin("up/a", "other")
    first.tasks[1].cancel()
    await asyncio.gather(first.tasks[1], return_exceptions=True)
    await first.look()
    await second.look()
    assert first.running == {"ledger"}
    assert second.running == {"up/a", "other"}


async def test_what_is_let_go_ends_with_the_session(node: Opener, clock: MovedClock) -> None:
    """
    A task whose lease is given back may end in good order, but must end before another gateway may start it.
    """
    first, second = node("a"), node("b")
    run = first.leases.run_while_leased("up/a", first.work("up/a"), finish=lambda: None)
    first.tasks.append(asyncio.create_task(run))
    await first.begin("up/b")
    await second.begin("up/a", "up/b")
    while not first.leases._going:
        clock.move(2)
        await first.look()
        await second.look()
    assert {"up/a", "up/b"} == first.running
    clock.move(TRUST_S)
    going = list(first.leases._going.values())
    await first.look()
    async with limited():
        await asyncio.gather(*going)
    assert set() == first.running


async def test_different_settings_of_gateways_are_shown(node: Opener, clock: MovedClock) -> None:
    """
    If gateways' settings differ, each gateway's settings are shown, each change with its time, and ended gateways
    are left out. While all agree, nothing is shown.
    """
    one, other, silent = (node(name) for name in ("one", "other", "silent"))
    for each in (one, other):
        each.leases.publish_settings({"hold": "x1", "prices": "y1"})
    began = clock.now()
    for each in (one, other, silent):
        await each.begin("ledger")
    assert () == tuple(await one.leases.differing_node_settings())
    clock.move(2)
    # the other gateway still has the earlier settings
    other.leases.publish_settings({"hold": "x1", "prices": "y1"})
    one.leases.publish_settings({"hold": "x2", "prices": "y1"})
    for each in (one, other, silent):
        await each.look()
    found = [
        (told.name, told.since - began, told.digests["hold"])
        for told in await silent.leases.differing_node_settings()
    ]
    assert [("one", 2, "x2"), ("other", 0, "x1")] == found
    clock.move(SESSION_S - 1)
    await other.look()
    clock.move(2)
    await other.look()
    assert () == tuple(await other.leases.differing_node_settings())
