"""
A change is answered as done only when a standby has it. Without a standby it is refused, as records are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from spool.clusters import Cluster
from spool.devices.device import REVOKED
from spool.devices.table import DeviceTable
from spool.errors import SpoolUnavailable
from spool.postgres.address import change_stored_settings
from spool.postgres.database import Database, Unconfirmed
from spool.postgres.devices import PostgresClusters, PostgresDevices
from spool.postgres.migrations import migrate_schema
from spool.postgres.registry.store import PostgresRegistry
from spool.registry.audit import AuditedChange
from spool.registry.following import DEVICES
from spool.registry.keys import DISABLED
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from spool.settings import NO_POOLER
from tests.moved_clock import MovedClock
from tests.spool.postgres.shared.test_shared_devices import ACTOR, device, labelled
from tests.spool.postgres.test_replication import WAITING
from tests.spool.postgres_cluster import Schema, Server


@pytest.fixture
async def strict(fresh_schema: Schema) -> AsyncIterator[Database]:
    """A database that requires a standby. The server waits for none unless a test says otherwise."""
    pooled = fresh_schema.pooler != NO_POOLER
    database = Database(
        fresh_schema.dsn, schema=fresh_schema.name, pooled=pooled, commit_timeout_s=300.0, needs_standby=True
    )
    await migrate_schema(database)
    yield database
    await database.close()


async def opened(database: Database) -> Registry:
    return await Registry.open(PostgresRegistry(database), secret=b"s" * 32, clock=MovedClock())


async def test_without_a_standby_nothing_is_changed(strict: Database) -> None:
    """
    No key, device, cluster or setting changes, and nothing is audited. Only the time when a device was
    seen is stored.
    """
    registry, table = await opened(strict), await DeviceTable.open(PostgresDevices(strict))
    audited: list[AuditedChange] = []

    async def audit(changes: Sequence[AuditedChange]) -> None:
        audited.extend(changes)

    table.auditor = audit
    strict.needs_standby = False
    await table.replace_row(device())
    await registry.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    strict.needs_standby = True
    enrolment = AuditedChange(actor=ACTOR, action="device.enrol", target="laptop-2")
    cluster = Cluster(id="c", account="a", region="r", name="n", first_seen=1.0, last_seen=1.0)
    for change in (
        registry.keys.create(name="two", scopes=[INGEST], actor=ACTOR),
        # this change must wait for the standby, because otherwise the new secret could be lost
        registry.keys.rotate("one", overlap_s=0, actor=ACTOR),
        table.update("laptop-2", lambda known: known or device("laptop-2"), enrolment),
        table.update("laptop-1", labelled("a")),
        PostgresClusters(strict).write(cluster),
        change_stored_settings(strict, {"retention": 1.0}),
    ):
        with pytest.raises(SpoolUnavailable, match="the standby is gone"):
            await change
    assert [] == audited
    table.change_and_write_soon("laptop-1", lambda known: device(last_seen=9.0))
    await table.flush()
    assert [device(last_seen=9.0)] == list((await PostgresDevices(strict).load())[0])
    again = await opened(strict)
    assert ["one"] == [key.name for key in again.keys.all()]
    await table.close()


async def test_without_a_standby_a_key_is_ended_and_not_answered_as_ended(strict: Database) -> None:
    """
    An operator can revoke a stolen key before repairing the database. The answer states that it is on
    one machine only.
    """
    registry, table = await opened(strict), await DeviceTable.open(PostgresDevices(strict))
    strict.needs_standby = False
    await asyncio.gather(*(table.replace_row(device(id, has_key=True)) for id in ("revoked", "deleted")))
    for name in ("disabled", "deleted"):
        await registry.keys.create(name=name, scopes=[INGEST], actor=ACTOR)
    strict.needs_standby = True
    audited: list[AuditedChange] = []

    async def audit(changes: Sequence[AuditedChange]) -> None:
        audited.extend(changes)

    table.auditor = audit
    revocation, deletion = (
        AuditedChange(actor=ACTOR, action=f"device.{verb}", target=f"{verb}d")
        for verb in ("revoke", "delete")
    )
    for change in (
        registry.keys.delete("deleted", confirm="deleted", actor=ACTOR),
        registry.keys.disable("disabled", actor=ACTOR),
        table.update("revoked", lambda known: replace(known or device("revoked"), state=REVOKED), revocation),
        table.delete(["deleted"], [deletion]),
    ):
        with pytest.raises(Unconfirmed, match="the standby is gone"):
            await change
    assert [revocation, deletion] == audited
    await table.read_changes_of_other_processes((await registry.catch_up()).changed_ids(DEVICES))
    for keys, devices in ((registry.keys, table), ((await opened(strict)).keys, await again(strict))):
        assert [("disabled", DISABLED)] == [(key.name, key.status) for key in keys.all()]
        assert [("revoked", REVOKED)] == [(row.id, row.state) for row in devices.all()]
        await devices.close()


async def again(database: Database) -> DeviceTable:
    """Open the devices as another gateway finds them."""
    return await DeviceTable.open(PostgresDevices(database))


async def test_standby_lost_during_a_change_confirms_nothing(
    strict: Database, cluster: Server, waiting: asyncio.Task[object]
) -> None:
    """
    The server stops waiting for standbys during the change. The change is stored but not reported as a
    success, and memory follows.
    """
    registry, table = await opened(strict), await DeviceTable.open(PostgresDevices(strict))
    changes: Sequence[asyncio.Task[object]] = [
        asyncio.create_task(registry.keys.create(name="one", scopes=[INGEST], actor=ACTOR)),
        asyncio.create_task(table.replace_row(device())),
    ]
    # One of the two changes holds the lock for which the other one waits.
    while len(await asyncio.to_thread(cluster.execute, WAITING)) < 2:
        pass
    await asyncio.to_thread(cluster.change, synchronous_standby_names="")
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    assert any(isinstance(one, Unconfirmed) and "the standby is gone" in str(one) for one in outcomes), (
        outcomes
    )
    assert all(isinstance(one, SpoolUnavailable) for one in outcomes)
    await waiting
    await registry.catch_up()
    await table.read_changes_of_other_processes(None)
    is_kept = [isinstance(one, Unconfirmed) for one in outcomes]
    assert is_kept == [bool(registry.keys.all()), bool(table.all())]
    await table.close()
