"""
The table of devices, on disk and in memory. A change is visible at once, and on disk before it is confirmed.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spool.devices.device import (
    Device,
    DeviceRows,
    DeviceWrite,
    Expectations,
    TooManyDevices,
    UnenrolledName,
    change_for_existing_device,
    is_device_id,
)
from spool.devices.table import MAX_UNENROLLED, DeviceTable
from spool.errors import NotThere, SpoolUnavailable
from spool.postgres.devices import PostgresDevices
from spool.registry.audit import AuditedChange
from spool.registry.operators import Actor
from spool.sqlite.database import Database
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from spool.sqlite.migrations import migrate, read_script
from tests.spool.contract.conftest import EVERY_ENGINE, migrated
from tests.spool.ledger.engines import POOLED, POSTGRES, schemas_of

ACTOR = Actor("fleet", "127.0.0.1")


def device(id: str = "laptop-1", **fields: Any) -> Device:
    return Device(**{"id": id, "enrolled_at": 1.0, "enrolled_by": "fleet", "last_seen": 1.0, **fields})


class Counted:
    """Rows that count writes, and fail when a test says so."""

    def __init__(self, device_rows: DeviceRows) -> None:
        self.rows = device_rows
        self.writes: list[int] = []
        self.broken = False

    @property
    def is_shared(self) -> bool:
        return self.rows.is_shared

    async def load(self) -> tuple[Sequence[Device], Sequence[UnenrolledName]]:
        return await self.rows.load()

    async def write(self, device_write: DeviceWrite) -> Mapping[str, Device | None]:
        if self.broken:
            raise SpoolUnavailable("the disk is full")
        self.writes.append(len(device_write.devices))
        return await self.rows.write(device_write)

    async def wait_for_running_commits(self) -> None:
        await self.rows.wait_for_running_commits()

    async def failed_expectations(self, device_write: DeviceWrite) -> Expectations:
        return await self.rows.failed_expectations(device_write)

    async def rows_changed_elsewhere(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        return await self.rows.rows_changed_elsewhere(ids)

    async def unenrolled_names(self) -> Sequence[UnenrolledName]:
        return await self.rows.unenrolled_names()


class EndedSlowly(Counted):
    """Rows that another process changes while the table waits for the last commits under ended keys."""

    def __init__(self, device_rows: DeviceRows) -> None:
        super().__init__(device_rows)
        self.waits, self.may_end = asyncio.Event(), asyncio.Event()
        self.changed: dict[str, Device | None] = {}

    async def wait_for_running_commits(self) -> None:
        self.waits.set()
        await self.may_end.wait()

    async def rows_changed_elsewhere(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        return self.changed


@pytest.fixture(params=EVERY_ENGINE)
async def rows(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Counted]:
    if request.param in (POSTGRES, POOLED):
        async with migrated(schemas_of(request.param, request)()) as postgres:
            yield Counted(PostgresDevices(postgres))
        return
    database = await Database.open(
        tmp_path / "spool.sqlite", lambda connection: migrate(connection, (read_script("devices.sql"),))
    )
    yield Counted(SqliteDevices(database))
    await database.close()


async def test_stored_device_is_read_back_unchanged(rows: Counted) -> None:
    table = await DeviceTable.open(rows)
    kept = device(
        hostname="mill", platform="linux", agent_version="1", user="ada", fingerprint="f", labels={"team": "search"},
        operator_labels={"team": "ads"}, generation=3, has_key=True, key_used=True, last_heartbeat=2.0,
        last_telemetry=3.0, newest_calls={"codex": 2.5}, heartbeat=b"{}", clock_offset_s=-1.5, flagged_at=4.0,
        version=7, facts_version=5, sent_version=6, upstream_id="up-1", held="no", reset_version=2, revoked_by="site",
        state_changes="1 reporting\n2 losing",
    )  # fmt: skip
    await table.replace_row(kept)
    await table.close()
    again = await DeviceTable.open(rows)
    assert kept == again.find("laptop-1")
    assert {"team": "ads"} == kept.all_labels
    await again.close()


async def test_devices_share_equal_labels(rows: Counted) -> None:
    """Devices with equal labels have one object for them after a start, because own ones take 250 bytes each."""
    table = await DeviceTable.open(rows)
    for id in ("laptop-1", "laptop-2"):
        await table.replace_row(device(id, labels={"team": "search"}, operator_labels={"floor": "2"}))
    await table.close()
    again = await DeviceTable.open(rows)
    one, other = again.all()
    assert one.labels is other.labels
    assert one.operator_labels is other.operator_labels
    assert ({"team": "search"}, {"floor": "2"}) == (one.labels, one.operator_labels)
    await again.close()


@pytest.mark.one_engine
async def test_who_waits_together_is_written_together(rows: Counted) -> None:
    """A thousand simultaneous devices need few transactions."""
    table = await DeviceTable.open(rows)
    await asyncio.gather(*(table.replace_row(device(f"d{n}")) for n in range(1000)))
    assert 1000 == len(table) == sum(rows.writes)
    assert len(rows.writes) <= 2
    await table.close()


async def test_what_could_not_be_written_never_was(rows: Counted) -> None:
    """
    If a write fails, new devices vanish, changed devices are restored, and all waiting callers get the error.
    """
    table = await DeviceTable.open(rows)
    await table.replace_row(device())
    rows.broken = True
    attempts = (table.replace_row(device("other")), table.replace_row(device(state="revoked")))
    failures = await asyncio.gather(*attempts, return_exceptions=True)
    assert [SpoolUnavailable] * 2 == [type(each) for each in failures]
    assert device() == table.find("laptop-1")
    assert table.find("other") is None
    rows.broken = False
    await table.replace_row(device("other"))
    await table.close()
    assert {"laptop-1", "other"} == {each.id for each in (await DeviceTable.open(rows)).all()}


async def test_a_failure_that_nobody_waits_for_is_no_defect() -> None:
    """If a write fails whose caller was cancelled meanwhile, asyncio must not report an unretrieved error."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: complaints.append(context["message"])
    )
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def fail(changes: Sequence[AuditedChange]) -> None:
        begun.set()
        await goes_on.wait()
        raise SpoolUnavailable("the audit list cannot be written")

    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    table.auditor = fail
    asking = asyncio.create_task(
        table.replace_row(device(), AuditedChange(actor=ACTOR, action="device.enrol", target="laptop-1"))
    )
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    del asking  # the task's traceback refers to the failed future
    goes_on.set()
    await table.close()
    del table
    gc.collect()
    assert [] == complaints


async def test_a_touched_device_waits_for_a_working_disk(rows: Counted) -> None:
    """If the disk fails, the time of a device's last report is written with the next flush that works."""
    table = await DeviceTable.open(rows)
    await table.replace_row(device())
    rows.broken = True
    table.change_and_write_soon("laptop-1", lambda known: replace(known, last_telemetry=9.0))
    await table.flush()
    rows.broken = False
    await table.close()
    assert 9.0 == (await DeviceTable.open(rows)).all()[0].last_telemetry


async def test_change_that_cannot_be_audited_is_not_made(rows: Counted) -> None:
    """A change that cannot be audited is not made."""
    table = await DeviceTable.open(rows)
    told: list[str] = []

    async def note(changes: Sequence[AuditedChange]) -> None:
        told.extend(change.action for change in changes)
        assert [] == rows.writes
        raise SpoolUnavailable("the audit list cannot be written")

    table.auditor = note
    with pytest.raises(SpoolUnavailable):
        await table.replace_row(
            device(), AuditedChange(actor=ACTOR, action="device.enrol", target="laptop-1")
        )
    assert told == ["device.enrol"]
    assert table.find("laptop-1") is None
    assert rows.writes == []
    await table.close()


async def test_unenrolled_names_are_bounded_and_end_with_enrolment(rows: Counted) -> None:
    """
    At the limit, the name unheard for longest is dropped. Enrolment removes a name, and the other names
    survive a restart.
    """
    table = await DeviceTable.open(rows)
    for n in range(MAX_UNENROLLED + 1):
        table.store_unenrolled_name(f"n{n}", key="k", now=float(n))
    table.store_unenrolled_name("n1", key="other", now=5000.0)
    await table.replace_row(device("n2"))
    await table.close()
    again = await DeviceTable.open(rows)
    names = {each.name: each for each in again.unenrolled_names()}
    assert MAX_UNENROLLED - 1 == len(names)
    assert {"n0", "n2"}.isdisjoint(names)
    assert UnenrolledName(name="n1", first_seen=1.0, last_seen=5000.0, count=2, key="other") == names["n1"]
    await again.close()


async def test_written_rows_are_news(rows: Counted) -> None:
    """The task that sends devices upstream waits for commits, not for a timer."""
    table = await DeviceTable.open(rows)
    waiting = asyncio.create_task(table.wait_for_changes())
    await asyncio.sleep(0)
    assert not waiting.done()
    await table.replace_row(device())
    await waiting
    await table.close()
    with pytest.raises(SpoolUnavailable):
        await table.replace_row(device("late"))


@pytest.mark.parametrize("id", ["laptop-1", "a", "ada@mill:3._-", "x" * 128])
def test_device_ids(id: str) -> None:
    """Ids have letters, digits and five punctuation marks, at most 128 characters."""
    assert is_device_id(id)


@pytest.mark.parametrize("id", ["", "x" * 129, "a b", "a/b", "ä", "a\n"])
def test_what_is_no_device_id(id: str) -> None:
    assert not is_device_id(id)


def test_a_version_for_everything_upstream_should_hear() -> None:
    """
    A heartbeat raises the version. A changed fact also raises the facts version, which an enrolment sends.
    """
    beat = device().with_changes_and_next_version(last_heartbeat=2.0)
    assert beat.version == 2
    assert beat.facts_version == 1
    assert (moved := beat.with_changes_and_next_version(changes_enrolment=True, hostname="new")).version == 4
    assert moved.facts_version == 3
    assert replace(moved, hostname="") != beat


async def test_deleted_device_stays_deleted(rows: Counted) -> None:
    """
    A deleted device stays deleted, even if it was touched just before. A device that enrols again at the
    same moment exists.
    """
    table = await DeviceTable.open(rows)
    await asyncio.gather(*(table.replace_row(device(id)) for id in ("gone", "touched", "back", "stays")))
    table.change_and_write_soon("touched", lambda known: replace(known, last_seen=5.0))
    change = AuditedChange(actor=ACTOR, action="device.delete", target="gone")
    deleting = asyncio.create_task(table.delete(["gone", "touched", "back", "unknown"], [change]))
    await asyncio.sleep(0)
    assert {"stays"} == {each.id for each in table.all()}
    await table.replace_row(device("back", hostname="new"))
    await deleting
    await table.close()
    again = await DeviceTable.open(rows)
    assert {"stays": "", "back": "new"} == {each.id: each.hostname for each in again.all()}


async def test_a_deletion_that_cannot_be_written_is_none(rows: Counted) -> None:
    """If a deletion cannot be written, the device is unchanged, and a later deletion works."""
    table = await DeviceTable.open(rows)
    await table.replace_row(device(hostname="mill"))
    rows.broken = True
    with pytest.raises(SpoolUnavailable):
        await table.delete(["laptop-1"], [])
    assert [device(hostname="mill")] == table.all()
    rows.broken = False
    await table.delete(["laptop-1"], [])
    await table.close()
    assert [] == (await DeviceTable.open(rows)).all()


async def test_a_change_is_a_function_of_the_row(rows: Counted) -> None:
    """Two simultaneous changes are both made. A change that refuses alters nothing."""
    table = await DeviceTable.open(rows)
    await table.replace_row(device())
    await asyncio.gather(
        table.update("laptop-1", change_for_existing_device(lambda known: replace(known, hostname="mill"))),
        table.update("laptop-1", change_for_existing_device(lambda known: replace(known, user="ada"))),
    )
    with pytest.raises(NotThere):
        await table.update("other", change_for_existing_device(lambda known: replace(known, user="ada")))
    table.change_and_write_soon("other", lambda known: replace(known, user="ada"))
    await table.close()
    assert [device(hostname="mill", user="ada")] == (await DeviceTable.open(rows)).all()


async def test_no_more_than_may_be(rows: Counted) -> None:
    """
    The limit of devices holds even if several enrol at once. At the limit, an existing device can still be changed.
    """
    table = await DeviceTable.open(rows)
    outcomes = await asyncio.gather(
        *(
            table.update(id, lambda known, id=id: known or device(id), max_devices=2)  # type: ignore[misc]
            for id in ("a", "b", "c")
        ),
        return_exceptions=True,
    )
    assert [Device, Device, TooManyDevices] == [type(one) for one in outcomes]
    await table.update(
        "a", change_for_existing_device(lambda known: replace(known, user="ada")), max_devices=1
    )
    assert ["a", "b"] == sorted(each.id for each in (await DeviceTable.open(rows)).all())


async def test_what_others_write_while_a_key_ends_is_not_changed_again() -> None:
    """
    What others wrote while a key ends is not changed again: a written change is already in the row, and applying it
    again would overwrite another process's later change.
    """
    rows = EndedSlowly(SqliteDevices(MemoryDatabase(SPOOL)))
    rows.may_end.set()
    table = await DeviceTable.open(rows)
    for id in ("revoked", "deleted"):
        await table.replace_row(device(id, has_key=True))
    again = {id: device(id, has_key=True, generation=1) for id in ("revoked", "deleted")}
    rows.waits.clear()
    rows.may_end.clear()
    ending = asyncio.gather(
        table.replace_row(device("revoked", has_key=True, state="revoked")), table.delete(["deleted"], [])
    )
    await rows.waits.wait()
    rows.changed = dict(again)
    await table.read_changes_of_other_processes(["revoked", "deleted"])
    rows.may_end.set()
    await ending
    assert again == {id: table.find(id) for id in again}
    await table.close()
