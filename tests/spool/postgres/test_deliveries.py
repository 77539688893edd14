"""
Several gateways send from one database: which one holds a delivery, and what happens to it after a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from random import Random

import psycopg
import pytest

from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.errors import NotAllowed, NotCertain, NotThere, SpoolUnavailable, TakenOver
from spool.postgres.database import SESSION_S, Database, PipelinedTransaction
from spool.postgres.deliveries.deliveries import PostgresDeliveries
from spool.postgres.deliveries.delivery_rows import PostgresRoutes
from spool.postgres.leases import NAMED_S, PostgresLeases
from spool.postgres.log.log import PostgresLog
from spool.postgres.migrations import migrate_schema
from spool.settings import LOCAL, SpoolSettings
from tests.exporters.spools import ROUTE, SPEC, Spooled, calls
from tests.moved_clock import MovedClock
from tests.rounds import reduced
from tests.spool.postgres_cluster import Schema, Server

OTHER = RouteSpec(name="other/ai-telemetry", topic=SPEC.topic)


class Node(Spooled):
    """A gateway with its own log, deliveries and session."""

    database: Database
    leases: PostgresLeases
    follow: Callable[[], Awaitable[None]]

    async def take(self, *, max_records: int = 10) -> Delivery | None:
        return await self.deliveries.take_due_delivery(ROUTE, now=self.clock.now(), max_records=max_records)

    async def taken(self, *, max_records: int = 10) -> Delivery:
        delivery = await self.take(max_records=max_records)
        assert delivery is not None
        return delivery

    async def deliver(self, delivery: Delivery) -> None:
        await self.deliveries.store_settlement(delivery, Settlement(delivered=delivery.count))

    async def hold(self) -> asyncio.Task[None]:
        """Run a task under the route's lease. From now on only the test renews sessions."""
        task = asyncio.create_task(self.leases.run_while_leased(ROUTE, forever))
        await asyncio.sleep(0)
        assert self.leases._keeper is not None
        self.leases._keeper.cancel()
        await asyncio.gather(self.leases._keeper, return_exceptions=True)
        await self.leases.renew_session()
        assert ROUTE in self.leases.running_leases
        return task

    async def let_go(self, task: asyncio.Task[None]) -> None:
        """Give back the lease, and keep the session."""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.leases.renew_session()
        assert ROUTE not in self.leases.running_leases

    async def take_in_vain(self, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
        """Take a delivery, but lose the answer."""
        pool = self.database.pool
        joined = pool.run_pipelined

        async def cut(work: Callable[[PipelinedTransaction], object]) -> object:
            await joined(work)
            raise error("the standby did not confirm it")

        with monkeypatch.context() as patch:
            patch.setattr(pool, "run_pipelined", cut)
            with pytest.raises(error):
                await self.take()

    async def routes(self) -> dict[str, str]:
        return {route.name: route.state for route in await self.deliveries.route_states()}


async def forever() -> None:
    await asyncio.Event().wait()


Opener = Callable[[str], Awaitable[Node]]


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
async def node(fresh_schema: Schema, clock: MovedClock) -> AsyncIterator[Opener]:
    """Return a function that opens gateways on one database. Records close at once."""
    async with AsyncExitStack() as stack:

        async def opener(name: str) -> Node:
            database = fresh_schema.database(clock=clock)
            stack.push_async_callback(database.close)
            await migrate_schema(database)
            leases = PostgresLeases(database, clock, name=name, version="1.2.3")
            stack.push_async_callback(leases.close)
            log = PostgresLog(
                database,
                settings=SpoolSettings(hold=0),
                clock=clock,
                secret=b"s" * 32,
                routes=PostgresRoutes(database),
                durability=LOCAL,
            )
            await log.open()
            stack.push_async_callback(log.close)
            deliveries = PostgresDeliveries(database, log=log, leases=leases, clock=clock)
            opened = Node(log=log, deliveries=deliveries, clock=clock)
            opened.database, opened.leases, opened.follow = database, leases, log.read_foreign_commits
            return opened

        yield opener


async def test_what_a_dead_gateway_had_in_hand_is_sent_by_another_one(
    node: Opener, clock: MovedClock
) -> None:
    """
    A delivery that a dead gateway held is sent by another one after the dead gateway's session has ended, under the
    same key, marked as possibly accepted. A late answer changes nothing.
    """
    first, second = await node("a"), await node("b")
    await first.deliveries.set_routes([SPEC])
    await second.deliveries.set_routes([SPEC])
    await first.add(calls(1, 10))
    lost = await first.taken()
    assert None is await second.take()
    clock.move(SESSION_S + 0.1)
    again = await second.taken()
    assert lost.idempotency_key == again.idempotency_key
    assert again.first == 1
    assert again.last == 10
    assert again.ambiguous is True
    await first.deliver(lost)
    with pytest.raises(TakenOver):
        await first.deliveries.store_delivery_mark(lost, "7 42")
    assert await first.terms() == {"queued": 10}
    assert first.deliveries.fenced == 2
    await second.deliver(again)
    await first.deliver(lost)
    assert await first.terms() == {"delivered": 10}
    assert (await second.state()).ambiguous == 10
    assert [] == list((await second.log.verify()).imbalances)


@pytest.mark.parametrize("error", [NotCertain, asyncio.CancelledError])
async def test_what_a_session_had_in_hand_is_free_in_the_next_one(
    node: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """
    A session ends and its workers are cancelled. The next session takes the delivery but loses the answer,
    because no standby confirmed it or the caller was cancelled. The same session then takes it again.
    """
    gateway = await node("a")
    await gateway.deliveries.set_routes([SPEC])
    await gateway.add(calls(1, 10))
    lost = await gateway.taken()
    clock.move(SESSION_S + 0.1)
    await gateway.leases.renew_session()
    await gateway.take_in_vain(monkeypatch, error)
    again = await gateway.taken()
    assert lost.id == again.id
    assert lost.idempotency_key == again.idempotency_key
    await gateway.deliver(again)
    assert {"delivered": 10} == await gateway.terms()


@pytest.mark.parametrize("error", [None, NotCertain, asyncio.CancelledError])
async def test_only_the_new_lease_holder_sends_a_running_delivery(
    node: Opener, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None
) -> None:
    """
    The gateway that holds the delivery lives on but no longer runs the route. It was cancelled while sending,
    or did not learn that it had taken the delivery. Only the new holder of the lease sends the delivery.
    """
    first, second, third = await node("a"), await node("b"), await node("c")
    for each in (first, second, third):
        await each.deliveries.set_routes([SPEC])
    await first.add(calls(1, 10))
    task = await first.hold()
    if error is None:
        await first.taken()
    else:
        await first.take_in_vain(monkeypatch, error)
    await first.let_go(task)
    task = await second.hold()
    assert None is await third.take()
    await first.leases.renew_session()
    again = await second.taken()
    assert again.first == 1
    assert again.last == 10
    assert again.ambiguous is True
    await second.deliver(again)
    await second.let_go(task)
    assert {"delivered": 10} == await second.terms()
    assert [] == list((await second.log.verify()).imbalances)


async def test_cancelled_delivery_is_free_when_its_lease_returns(node: Opener) -> None:
    """If a session gets a lease again, a delivery that it held and that was cancelled is free."""
    gateway = await node("a")
    await gateway.deliveries.set_routes([SPEC])
    await gateway.add(calls(1, 10))
    task = await gateway.hold()
    lost = await gateway.taken()
    await gateway.let_go(task)
    task = await gateway.hold()
    again = await gateway.taken()
    assert lost.id == again.id
    assert lost.idempotency_key == again.idempotency_key
    assert again.ambiguous is True
    assert None is await gateway.take()
    await gateway.deliver(again)
    await gateway.let_go(task)
    assert {"delivered": 10} == await gateway.terms()


async def test_a_late_answer_counts_where_nobody_took_over(node: Opener, clock: MovedClock) -> None:
    """A slow gateway's request arrived, so its late answer counts."""
    slow, other = await node("a"), await node("b")
    await slow.deliveries.set_routes([SPEC])
    await slow.add(calls(1, 10))
    late = await slow.taken()
    clock.move(3600)
    await slow.deliver(late)
    assert await slow.terms() == {"delivered": 10}
    assert await other.take() is None


async def test_a_start_leaves_what_others_send(node: Opener) -> None:
    """
    The start of a gateway changes no deliveries of others: none of them becomes ambiguous, and those that wait
    still wait.
    """
    first, second = await node("a"), await node("b")
    await first.deliveries.set_routes([SPEC])
    await first.add(calls(1, 20))
    in_hand, waiting = await first.taken(), await first.taken()
    later = first.clock.now() + 60
    await first.deliveries.schedule_retry(waiting, reason="503", not_before=later, answer="503")
    await second.deliveries.set_routes([SPEC])
    assert await second.take() is None
    assert await second.deliveries.next_due_at(ROUTE) == later
    await first.deliver(in_hand)
    assert await second.terms() == {"delivered": 10, "queued": 10}
    assert (await second.state()).ambiguous == 0


async def test_two_simultaneous_senders_send_nothing_twice(node: Opener) -> None:
    """If two gateways believe that they hold the lease, no record is lost or sent twice."""
    nodes = [await node("a"), await node("b")]
    for each in nodes:
        await each.deliveries.set_routes([SPEC])
    await nodes[0].add(calls(1, 60))
    sent: list[tuple[int, int]] = []

    async def send(one: Node) -> None:
        while (delivery := await one.take(max_records=3)) is not None:
            sent.append((delivery.first, delivery.last))
            if delivery.attempts == 0 and delivery.first % 2:
                await one.deliveries.schedule_retry(delivery, reason="503", not_before=0.0, answer="503")
            else:
                await one.deliver(delivery)
            await one.follow()

    await nodes[1].follow()
    await asyncio.gather(*(send(each) for each in (*nodes, *nodes)))
    assert await nodes[0].terms() == {"delivered": 60}
    assert await nodes[1].terms() == {"delivered": 60}
    # each of the twenty deliveries is sent once, and the half that was retried is sent once more
    assert 30 == len(sent)
    assert [0, 0] == [each.deliveries.fenced for each in nodes]


class Verbs:
    """A worker that calls all methods of a route in random order."""

    def __init__(self, node: Node, clock: MovedClock, seed: int) -> None:
        self.node, self.clock, self.random = node, clock, Random(seed)

    async def work(self, rounds: int) -> None:
        for _ in range(rounds):
            await self.random.choice(
                [self.send, self.send, self.send, self.send, self.decide, self.again, self.look]
            )()

    async def send(self) -> None:
        table, now = self.node.deliveries, self.clock.now()
        if self.random.random() < 0.3:
            delivery = await table.take_test_delivery(ROUTE, now=now, max_rejected_records=2)
        else:
            delivery = await table.take_due_delivery(ROUTE, now=now, max_records=self.random.randint(1, 5))
        if delivery is None:
            return
        outcome = self.random.randrange(6)
        if outcome == 0 and delivery.count > 1:
            await table.split_delivery(delivery, reason="413", refused=True)
        elif outcome == 1 and delivery.count == 1:
            await table.set_aside(delivery, error="400", status="400")
        elif outcome == 2:
            await table.schedule_retry(
                delivery, reason="503", not_before=now - 1, answer="503", server_error=True
            )
        elif outcome == 3:
            await table.mark_outcome_unknown(delivery, reason="cut off")
        elif outcome == 4:
            self.clock.move(1)  # the delivery stays in flight until another session takes it over
        else:
            await self.node.deliver(delivery)

    async def decide(self) -> None:
        table = self.node.deliveries
        letters, unknowns = await table.dead_letters(), await table.deliveries_with_unknown_outcome()
        if letters:
            decision = self.random.choice([table.retry_dead_letters, table.discard_dead_letters])
            await decision([each.id for each in self.random.sample(letters, min(2, len(letters)))])
        if unknowns:
            with suppress(NotThere):  # another worker may have been faster
                await table.settle_unknown(self.random.choice(unknowns).id, sent=self.random.random() < 0.5)

    async def again(self) -> None:
        await self.node.deliveries.replay_records(
            ROUTE, since=0, until=2e9, dry_run=self.random.random() < 0.7
        )

    async def look(self) -> None:
        await self.node.leases.renew_session()
        await self.node.deliveries.route_states()


async def test_accounting_balances_after_concurrent_calls_of_every_method(
    node: Opener, clock: MovedClock, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If several workers on two gateways call every method while sessions end, the accounting balances: no number is
    lost, and no lock remains.
    """
    nodes = [await node("a"), await node("b")]
    for each in nodes:
        await each.deliveries.set_routes([SPEC])
    count = 1 + 50 * reduced(3, by=3)
    workers = [Verbs(each, clock, seed) for seed, each in enumerate((*nodes, *nodes))]
    for first in range(1, count, 50):
        await nodes[0].add(calls(first, first + 49))
        await nodes[1].follow()
        await asyncio.gather(*(each.work(25) for each in workers))
        books = await nodes[1].log.verify()
        assert list(books.imbalances) == []
        assert sum(books.routes[ROUTE].values()) == first + 49
    clock.move(SESSION_S + 1)
    await nodes[0].leases.renew_session()
    while (delivery := await nodes[0].take()) is not None:
        await nodes[0].deliver(delivery)
    terms = await nodes[1].terms()
    assert list((await nodes[0].log.verify()).imbalances) == []
    assert sum(terms.values()) == count - 1
    assert 0 == terms.get("queued", 0)
    assert "deadlock" not in caplog.text


async def test_a_rolling_change_of_routes_orphans_nothing(node: Opener, clock: MovedClock) -> None:
    """A route stays while a live gateway names it, and becomes orphaned some time after no gateway does."""
    first, second = await node("a"), await node("b")
    await first.deliveries.set_routes([SPEC])
    await second.deliveries.set_routes([SPEC, OTHER])
    await first.deliveries.set_routes([OTHER])
    assert {ROUTE: "running", OTHER.name: "running"} == await first.routes()
    with pytest.raises(NotAllowed):
        await first.deliveries.delete_route_and_count_discarded(ROUTE)
    await second.leases.close()

    async def look(times: int) -> None:
        for _ in range(times):
            clock.move(NAMED_S / 20)
            await first.leases.renew_session()

    await look(17)
    assert {ROUTE: "running", OTHER.name: "running"} == await first.routes()
    await look(4)
    assert {ROUTE: "orphaned", OTHER.name: "running"} == await first.routes()
    assert 0 == await first.deliveries.delete_route_and_count_discarded(ROUTE)


async def test_operator_requests_to_one_gateway_reach_the_others(node: Opener) -> None:
    """Dead letters, unknown outcomes, states and replays are in the database, so any gateway may be used."""
    first, second = await node("a"), await node("b")
    await first.deliveries.set_routes([SPEC])
    await first.add(calls(1, 3))
    await first.deliveries.set_aside(await first.taken(max_records=1), error="400", status="400")
    await first.deliveries.mark_outcome_unknown(await first.taken(max_records=1), reason="cut off")
    await first.deliver(await first.taken(max_records=1))
    (letter,) = await second.deliveries.dead_letters()
    (unknown,) = await second.deliveries.deliveries_with_unknown_outcome()
    assert 1 == await second.deliveries.retry_dead_letters([letter.id])
    await second.deliveries.settle_unknown(unknown.id, sent=False)
    assert 1 == await second.deliveries.replay_records(ROUTE, since=0, until=2e9, dry_run=False)
    for _ in range(3):
        await first.deliver(await first.taken())
    assert {"delivered": 3} == await second.terms()
    await second.deliveries.set_route_state(ROUTE, "parked", "401")
    assert {ROUTE: "parked"} == await first.routes()
    assert [] == list((await first.log.verify()).imbalances)


async def test_configuration_that_was_not_stored_orphans_no_routes(
    node: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a gateway's configuration is not stored, the earlier one stays in force, and its routes are not orphaned.
    """
    first = await node("a")
    await first.deliveries.set_routes([SPEC])

    async def fail(work: object) -> None:
        raise SpoolUnavailable("away")

    assert isinstance(first.deliveries, PostgresDeliveries)
    with monkeypatch.context() as patch:
        patch.setattr(first.deliveries._database, "transaction", fail)
        with pytest.raises(SpoolUnavailable):
            await first.deliveries.set_routes([OTHER], at_start=False)
    for _ in range(21):
        clock.move(NAMED_S / 20)
        await first.leases.renew_session()
    assert {ROUTE: "running"} == await first.routes()


async def test_locks_are_acquired_in_one_order(
    node: Opener, fresh_schema: Schema, cluster: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A change of several routes waits for the last of their locks before it holds any, like a change of one route.
    """
    one = await node("a")
    await one.deliveries.set_routes([SPEC])
    await one.add(calls(1, 2))
    for delivery in [await one.taken(max_records=1), await one.taken(max_records=1)]:
        await one.deliveries.set_aside(delivery, error="400", status="400")
    several: asyncio.Task[object]
    with psycopg.connect(cluster.dsn) as other, psycopg.connect(cluster.dsn, autocommit=True) as look:
        table = f"{fresh_schema.name}.dead"
        other.execute(f"SELECT 1 FROM {table} WHERE id = (SELECT max(id) FROM {table}) FOR UPDATE".encode())
        ids = [letter.id for letter in await one.deliveries.dead_letters()]
        several = asyncio.create_task(one.deliveries.retry_dead_letters(ids))
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
        while look.execute(waiting).fetchone() is None:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
        await asyncio.to_thread(
            other.execute, f"UPDATE {fresh_schema.name}.routes SET reason = reason".encode()
        )
        other.commit()
    await several
    assert "deadlock" not in caplog.text
    assert [] == list((await one.log.verify()).imbalances)
