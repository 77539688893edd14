"""The follower of each process, which regularly reads into memory what other processes write."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from spool.clusters import ClusterTable, ReportedCluster
from spool.container_files.files import ContainerFiles
from spool.container_files.values import AnnouncedFile, ClusterIdentity, ContainerSender
from spool.devices.device import Device
from spool.devices.table import DeviceTable
from spool.errors import SpoolUnavailable
from spool.postgres.container_files import PostgresContainerFileContents, PostgresContainerRows
from spool.postgres.database import POOL, Connection, Database
from spool.postgres.devices import PostgresClusters, PostgresDevices
from spool.postgres.migrations import migrate_schema
from spool.postgres.registry.follower import REST_EVERY, FollowedRows, RegistryChangeFollower
from spool.postgres.registry.store import PostgresRegistry
from spool.postgres.streams import PostgresStreamRows, PostgresStreams
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from spool.registry.tables.cluster_settings import ClusterChange
from spool.settings import ContainerSettings
from spool.streams import ALLOCATION, KnownStreams, TelemetryStream
from tests.moved_clock import MovedClock
from tests.spool.postgres_cluster import Schema
from tests.waiting import awaited, limited, until

ACTOR = Actor("ada@example.com", "127.0.0.1")
MILL = ReportedCluster(account="1", region="eu", name="mill")
DEVICE = Device(id="laptop-1", enrolled_at=1.0, enrolled_by="fleet", last_seen=1.0)


class Node:
    def __init__(self, database: Database, shared: FollowedRows) -> None:
        self.database = database
        self.shared = shared
        self.follower = RegistryChangeFollower(shared, look_s=0.01)

    async def looks(self, times: int) -> None:
        for _ in range(times):
            await self.follower.read_registry_changes()
            await self.follower.read_changed_rows()


async def opened(database: Database, clock: MovedClock) -> Node:
    await migrate_schema(database)
    streams = await PostgresStreams.open(database, clock)
    rows, contents = PostgresContainerRows(database), PostgresContainerFileContents(database)
    registry = await Registry.open(PostgresRegistry(database), secret=b"i" * 32, clock=clock)
    clusters = await ClusterTable.open(PostgresClusters(database), clock=clock)
    clusters.settings = registry.cluster_settings
    shared = FollowedRows(
        registry=registry,
        devices=await DeviceTable.open(PostgresDevices(database)),
        clusters=clusters,
        streams=streams,
        book=KnownStreams(await streams.streams()),
        container_files=await ContainerFiles.open(rows, contents, ContainerSettings(), clock),
    )
    return Node(database, shared)


@pytest.fixture
async def nodes(fresh_schema: Schema) -> AsyncIterator[tuple[Node, Node]]:
    clock = MovedClock()
    async with AsyncExitStack() as stack:
        both = []
        for _ in range(2):
            database = fresh_schema.database()
            stack.push_async_callback(database.close)
            both.append(await opened(database, clock))
            stack.push_async_callback(both[-1].shared.devices.close)
        yield both[0], both[1]


async def test_what_one_changes_the_other_knows_after_a_look(nodes: tuple[Node, Node]) -> None:
    """The other process learns of changed and deleted keys, devices and clusters at its next check."""
    here, there = nodes[0].shared, nodes[1].shared
    await here.devices.replace_row(DEVICE)
    await here.clusters.store_report(MILL)
    await nodes[1].looks(1)
    assert there.devices.all() == [DEVICE]
    assert [cluster.name for cluster in there.clusters.all()] == ["mill"]
    await here.devices.delete(["laptop-1"], [])
    await here.clusters.delete(MILL.id, ACTOR)
    await nodes[1].looks(1)
    assert there.devices.all() == []
    assert there.clusters.all() == []


async def test_deleted_device_is_found_when_changes_are_no_longer_listed(nodes: tuple[Node, Node]) -> None:
    """If changes are no longer listed, everything is read, including which devices were deleted."""
    here, there = nodes[0], nodes[1].shared
    await here.shared.devices.replace_row(DEVICE)
    await nodes[1].looks(1)
    await here.shared.devices.delete(["laptop-1"], [])
    await here.shared.devices.replace_row(replace(DEVICE, id="laptop-2"))
    forget = here.database.fill_in_table_names("DELETE FROM {schema}.registry_changes")
    await here.database.run(lambda connection: connection.execute(forget))
    await nodes[1].looks(1)
    assert ["laptop-2"] == [device.id for device in there.devices.all()]


async def test_a_report_and_a_change_of_one_cluster(nodes: tuple[Node, Node]) -> None:
    """A report and a change of one cluster on two gateways do not undo each other."""
    here, there = nodes[0].shared, nodes[1].shared
    await here.clusters.store_report(MILL)
    await nodes[1].looks(1)
    await here.clusters.change(MILL.id, ClusterChange(display_name="The mill"), ACTOR)
    await there.clusters.store_report(replace(MILL, state="init_ok"))
    for node in nodes:
        await node.looks(1)
        [cluster] = node.shared.clusters.all()
        assert cluster.display_name == "The mill"
        assert cluster.state == "init_ok"


async def test_the_definitions_of_streams(nodes: tuple[Node, Node]) -> None:
    """A dropped stream is forgotten, but not while its operations are being committed."""
    here, there = nodes
    one = TelemetryStream(name="calls", type=ALLOCATION)

    def put(connection: Connection) -> None:
        PostgresStreamRows(connection, here.database).put_stream(one)

    def drop(connection: Connection) -> None:
        PostgresStreamRows(connection, here.database).drop_stream("calls")

    await here.database.transaction(put)
    with there.shared.book.claim_stream(TelemetryStream(name="seats", type=ALLOCATION)):
        pass
    await there.follower.read_tables_without_announcements()
    assert ["calls", "seats"] == [stream.name for stream in there.shared.book.all()]
    await here.database.transaction(drop)
    await there.follower.read_tables_without_announcements()
    assert ["seats"] == [stream.name for stream in there.shared.book.all()]


async def test_the_rest_is_known_within_seconds(nodes: tuple[Node, Node]) -> None:
    """
    A process learns within seconds of the use of keys, the times of devices, and the usage of
    container metrics' limits.
    """
    here, there = nodes[0].shared, nodes[1].shared
    key, _ = await here.registry.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    await here.devices.replace_row(DEVICE)
    await nodes[1].looks(1)
    await here.registry.keys.store_access_times({key.id: MovedClock().now()})
    here.devices.change_and_write_soon("laptop-1", lambda known: replace(known, last_seen=9.0))
    await here.devices.flush()
    await here.container_files.announce_files(
        ClusterIdentity("1", "eu", "mill"),
        [AnnouncedFile(reference="a")],
        ContainerSender(key="agent"),
        expires_at=9e9,
    )
    for _ in range(REST_EVERY):
        await nodes[1].follower.read_tables_without_announcements()
    assert [MovedClock().now()] == [each.last_accessed for each in there.registry.keys.all()]
    assert [9.0] == [each.last_seen for each in there.devices.all()]
    assert 1 == there.container_files.sums.row_count


async def test_a_look_that_fails_is_made_up_for(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a check fails, changes that were announced but not read are read at the next check."""
    here, there = nodes[0].shared, nodes[1].shared
    await here.devices.replace_row(DEVICE)
    await nodes[1].looks(1)
    await here.devices.delete(["laptop-1"], [])

    async def fails(self: PostgresDevices, ids: object) -> None:
        raise SpoolUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresDevices, "rows_changed_elsewhere", fails)
        with pytest.raises(SpoolUnavailable):
            await nodes[1].looks(1)
    assert [DEVICE] == there.devices.all()
    await nodes[1].looks(1)
    assert [] == there.devices.all()


async def test_it_looks_until_it_is_closed(nodes: tuple[Node, Node]) -> None:
    here, there = nodes
    there.follower.start()
    _, secret = await here.shared.registry.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    await here.shared.devices.replace_row(DEVICE)
    await awaited(there.shared.devices.wait_for_changes())
    await until(lambda: there.shared.registry.keys.find_by_secret(secret))
    assert [DEVICE] == there.shared.devices.all()
    await there.follower.close()


async def test_a_row_that_cannot_be_read_ends_nothing(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unreadable row, the follower still reads later changes, and keys meanwhile."""
    here, there = nodes
    tried = asyncio.Event()

    async def damaged(self: PostgresDevices, ids: object) -> None:
        tried.set()
        raise ValueError("no JSON")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresDevices, "rows_changed_elsewhere", damaged)
        there.follower.start()
        await here.shared.devices.replace_row(DEVICE)
        async with limited():
            await tried.wait()
    async with limited():
        await there.shared.devices.wait_for_changes()
    assert [DEVICE] == there.shared.devices.all()
    await there.follower.close()


async def test_keys_are_known_while_every_connection_for_questions_is_busy(nodes: tuple[Node, Node]) -> None:
    """The follower needs none of the connections for queries, so keys are known even if all of these are busy."""
    here, there = nodes
    await there.looks(1)
    released = threading.Event()
    questions = [asyncio.ensure_future(there.database.read(lambda _: released.wait(30))) for _ in range(POOL)]
    there.follower.start()
    rest = asyncio.ensure_future(there.follower.read_tables_without_announcements())
    seen = there.shared.registry.version
    await here.shared.registry.audit_change(ACTOR, "test", "nothing")
    try:
        async with limited():
            await there.follower.read_registry_changes()
            assert not rest.done()
            assert seen == there.shared.registry.version
            assert there.shared.registry.is_memory_fresh
    finally:
        released.set()
        await asyncio.gather(*questions, rest)
        await there.follower.close()


async def test_a_device_that_went_before_the_first_look(nodes: tuple[Node, Node]) -> None:
    """
    A device may be deleted during a start, after the devices were read and before the first position in the
    list of changes was set. The first check still finds the deletion.
    """
    here, there = nodes[0].shared, nodes[1].shared
    await here.devices.replace_row(DEVICE)
    await there.devices.read_changes_of_other_processes(None)
    await here.devices.delete(["laptop-1"], [])
    await there.registry.catch_up()  # this call sets the position from which the registry reads changes
    await nodes[1].looks(1)
    assert [] == there.devices.all()


async def test_clusters_that_were_changed_before_the_first_look(fresh_schema: Schema) -> None:
    """
    A cluster may change after the clusters were read and before the first position in the list of changes was
    set. The first check still finds the change.
    """
    clock = MovedClock()
    async with AsyncExitStack() as stack:
        databases = [fresh_schema.database() for _ in range(2)]
        for database in databases:
            stack.push_async_callback(database.close)
        here, there = await opened(databases[0], clock), await opened(databases[1], clock)
        stack.push_async_callback(here.shared.devices.close)
        stack.push_async_callback(there.shared.devices.close)
        await here.shared.clusters.store_report(MILL)
        # this call sets the position from which the registry reads changes
        await there.shared.registry.catch_up()
        await there.looks(1)
        assert ["mill"] == [cluster.name for cluster in there.shared.clusters.all()]
