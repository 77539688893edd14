"""
Nothing is sent because of rows that may exist on one machine only. After its loss, they would be sent again
under another key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from exporters.notifications.channel import Channel, NotificationMessage
from exporters.notifications.notifier import ChannelSender
from exporters.notifications.schedule import Schedule
from exporters.probe import Probe
from spool.container_files.files import ContainerFiles
from spool.container_files.values import FILE
from spool.deliveries.values import Settlement
from spool.errors import NotThere, SpoolUnavailable
from spool.postgres.container_files import PostgresContainerFileContents, PostgresContainerRows
from spool.postgres.database import Database, Unconfirmed
from spool.postgres.deliveries.deliveries import PostgresDeliveries
from spool.postgres.deliveries.delivery_rows import PostgresRoutes
from spool.postgres.leases import PostgresLeases
from spool.postgres.log.log import PostgresLog
from spool.postgres.registry.store import PostgresRegistry
from spool.registry.registry import Registry
from spool.settings import LOCAL, ContainerSettings, SpoolSettings
from tests.exporters.spools import ROUTE, SPEC, calls
from tests.moved_clock import MovedClock
from tests.spool.contract.registry.test_notices import NOTICE
from tests.spool.postgres.shared.test_shared_container_files import announce, put
from tests.spool.postgres.shared.test_standby_gone import strict
from tests.spool.postgres.test_deliveries import Node
from tests.spool.postgres.test_replication import WAITING
from tests.spool.postgres_cluster import Server

__all__ = ["strict"]

GONE = "the standby is gone"
CUT = "SELECT count(*), coalesce(max(fence), 0) FROM {schema}.deliveries"


@pytest.fixture
async def node(strict: Database) -> AsyncIterator[Node]:
    """A gateway with ten records for a route, whose database requires a standby from now on."""
    strict.needs_standby = False
    clock = MovedClock()
    async with AsyncExitStack() as stack:
        leases = PostgresLeases(strict, clock, name="a", version="0")
        stack.push_async_callback(leases.close)
        routes, settings = PostgresRoutes(strict), SpoolSettings(hold=0)
        log = PostgresLog(
            strict, settings=settings, clock=clock, secret=b"s" * 32, routes=routes, durability=LOCAL
        )
        await log.open()
        stack.push_async_callback(log.close)
        deliveries = PostgresDeliveries(strict, log=log, leases=leases, clock=clock)
        opened = Node(log=log, deliveries=deliveries, clock=clock)
        await deliveries.set_routes([SPEC])
        await opened.add(calls(1, 10))
        strict.needs_standby = True
        yield opened
        strict.needs_standby = False


async def cut(database: Database) -> tuple[int, int]:
    """Return the number of deliveries and of attempts."""
    row = await database.read(
        lambda connection: connection.execute(database.fill_in_table_names(CUT)).fetchone()
    )
    assert row is not None
    return row[0], row[1]


@pytest.mark.proves("deliveries that exist on one machine")
async def test_route_without_a_standby_shows_the_reason(node: Node, strict: Database) -> None:
    """Without a standby, the route shows the reason on every gateway, and continues by itself."""
    with pytest.raises(SpoolUnavailable, match=GONE):
        await node.take()
    with pytest.raises(SpoolUnavailable, match=GONE):
        await node.deliveries.take_test_delivery(ROUTE, now=node.clock.now(), max_rejected_records=1)
    assert (0, 0) == await cut(strict)
    assert f"waits: {GONE}: synchronous_standby_names is empty" == (await node.state()).reason
    strict.needs_standby = False
    await node.deliver(await node.taken())
    assert None is (await node.state()).reason


async def test_operator_gets_no_success_without_a_standby(node: Node, strict: Database) -> None:
    """
    Without a standby, neither an operator's action nor its repeat returns success, and nothing is sent again.
    """
    deliveries = node.deliveries
    strict.needs_standby = False
    await deliveries.mark_outcome_unknown(await node.taken(max_records=5), reason="no answer")
    await deliveries.set_aside(await node.taken(max_records=1), error="no", status="400")
    [unknown], [dead] = await deliveries.deliveries_with_unknown_outcome(), await deliveries.dead_letters()
    strict.needs_standby = True
    refused: list[Callable[[], Awaitable[object]]] = [
        lambda: deliveries.settle_unknown(unknown.id, sent=True),
        lambda: deliveries.settle_unknown(10**6, sent=True),
        lambda: deliveries.retry_dead_letters([dead.id]),
        lambda: deliveries.discard_dead_letters([10**6]),
        lambda: deliveries.replay_records(ROUTE, since=0.0, until=1e12, dry_run=False),
    ]
    for ask in refused:
        with pytest.raises(SpoolUnavailable, match=GONE):
            await ask()
    assert [unknown.id] == [one.id for one in await deliveries.deliveries_with_unknown_outcome()]
    assert [dead.id] == [one.id for one in await deliveries.dead_letters()]
    strict.needs_standby = False
    with pytest.raises(NotThere):
        await deliveries.settle_unknown(10**6, sent=True)
    await deliveries.settle_unknown(unknown.id, sent=True)


async def test_delivery_taken_while_the_standby_disappears_is_not_sent(
    node: Node, strict: Database, cluster: Server, waiting: asyncio.Task[object]
) -> None:
    """
    If a delivery is taken while the standby disappears, it is not sent. Once a standby has it, it is taken again
    under the same key and marked as not sent.
    """
    taking = asyncio.create_task(node.take())
    while not await asyncio.to_thread(cluster.execute, f"{WAITING} AND application_name = 'tollhouse verbs'"):
        pass
    await asyncio.to_thread(cluster.change, synchronous_standby_names="")
    with pytest.raises(Unconfirmed, match=GONE):
        await taking
    await waiting
    [(key,)] = await strict.read(
        lambda one: one.execute(
            strict.fill_in_table_names("SELECT idempotency_key FROM {schema}.deliveries")
        ).fetchall()
    )
    strict.needs_standby = False
    delivery = await node.taken()
    assert delivery.idempotency_key == key
    assert delivery.ambiguous is False
    assert delivery.count == 10
    strict.needs_standby = True
    # The delivery cannot be sent again before the standby confirms the position of its bytes.
    with pytest.raises(Unconfirmed, match=GONE):
        await node.deliveries.store_delivery_mark(delivery, "7")
    # The settlement is not refused. If an unconfirmed position is lost, the delivery is sent again under
    # the same key.
    await node.deliveries.store_settlement(delivery, Settlement(delivered=10))
    assert 0 == (await node.state()).ambiguous


async def test_file_is_acknowledged_only_when_a_standby_has_it(strict: Database) -> None:
    """
    The sender of a file gets an acknowledgement only when a standby has the file, because it may delete its copy.
    """
    rows, contents = PostgresContainerRows(strict), PostgresContainerFileContents(strict)
    files = await ContainerFiles.open(rows, contents, ContainerSettings(), MovedClock())
    with pytest.raises(SpoolUnavailable, match=GONE):
        await announce(files, "a")
    strict.needs_standby = False
    one, two = [await announce(files, name) for name in ("one", "two")]
    assert await put(files, one.id, b"metrics")
    strict.needs_standby = True
    with pytest.raises(SpoolUnavailable, match=GONE):
        await put(files, two.id, b"metrics")
    with pytest.raises(SpoolUnavailable, match=GONE):
        await files.due_files(FILE, limit=9)
    strict.needs_standby = False
    assert [one.id] == [file.id for file in await files.due_files(FILE, limit=9)]


class SentMessages(Channel):
    def __init__(self) -> None:
        self.sent: list[NotificationMessage] = []

    def secret_file_state(self) -> object:
        return None

    async def send(self, message: NotificationMessage) -> str:
        self.sent.append(message)
        return ""

    def check_secret(self) -> None: ...

    async def probe(self) -> Probe:
        raise NotImplementedError

    async def close(self) -> None: ...


async def test_a_notice_leaves_where_a_standby_has_it(strict: Database) -> None:
    """
    After the loss of the machine, the event of an unconfirmed notice would be found again and sent
    under another id.
    """
    clock = MovedClock()
    registry = await Registry.open(PostgresRegistry(strict), secret=b"s" * 32, clock=clock)
    await registry.notices.add([NOTICE], ["mail"])
    channel = SentMessages()
    sender = ChannelSender("mail", channel, Schedule(), registry.notices, clock)
    with pytest.raises(SpoolUnavailable, match=GONE):
        await sender.send_due_and_return_next_time()
    assert [] == channel.sent
    strict.needs_standby = False
    await sender.send_due_and_return_next_time()
    assert [[NOTICE]] == [list(message.notices) for message in channel.sent]
