"""
Devices that are deleted, forgotten or admitted by an operator: their keys, and the limit on their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from gateway.configuration.sections import DeviceSettings
from gateway.core.errors import Refusal
from gateway.devices.lifecycle import GRACE_S, DeviceLifecycle
from gateway.devices.reports import DeviceReport
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.device import HEARD_EVERY_S, Device
from spool.devices.table import DeviceTable
from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.registry.audit import AuditedChange
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL, HEARTBEAT
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.moved_clock import MovedClock

ADA = Actor("ada", "socket")
FLEET = AuthenticatedKey("fleet", frozenset({ENROLL, HEARTBEAT}))
DAY_S = 86_400.0


class Fleet:
    """Device rules over a table in memory, with the audit entries."""

    def __init__(self, table: DeviceTable, clock: MovedClock) -> None:
        self.table = table
        self.clock = clock
        self.audited: list[tuple[str, str]] = []
        table.auditor = self._audit
        self.rules = self.with_settings()

    def with_settings(self, **settings: Any) -> DeviceLifecycle:
        given = DeviceSettings(**settings)
        self.rules = DeviceLifecycle(self.table, settings=given, clock=self.clock, secret=b"s" * 32)
        return self.rules

    async def _audit(self, changes: Any) -> None:
        self.audited += [
            (change.action, change.target) for change in changes if isinstance(change, AuditedChange)
        ]

    async def enrol(self, id: str, **report: Any) -> tuple[Device, str | None]:
        return await self.rules.enrol_or_update(DeviceReport(id=id, **report), FLEET, "")

    def ids(self) -> set[str]:
        return {device.id for device in self.table.all()}


@pytest_asyncio.fixture
async def fleet() -> AsyncIterator[Fleet]:
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    yield Fleet(table, MovedClock())
    await table.close()


async def test_the_key_of_a_deleted_device_stays_dead(fleet: Fleet) -> None:
    """
    After a device was deleted, its key stays invalid, even if another machine enrols under the same id and gets a
    key.
    """
    _, first = await fleet.enrol("laptop", want_key=True)
    assert first is not None and fleet.rules.keys.bearer_of_key(first) is not None
    await fleet.rules.delete_device("laptop", ADA)
    with pytest.raises(Refusal, match="no longer valid"):
        fleet.rules.keys.bearer_of_key(first)
    fleet.clock.move(60)
    _, second = await fleet.enrol("laptop", want_key=True)
    assert second is not None and second != first
    assert fleet.rules.keys.bearer_of_key(second) is not None
    with pytest.raises(Refusal, match="no longer valid"):
        fleet.rules.keys.bearer_of_key(first)
    with pytest.raises(NotThere):
        await fleet.rules.delete_device("nobody", ADA)
    assert ("device.delete", "laptop") in fleet.audited


async def test_what_was_not_heard_is_forgotten(fleet: Fleet) -> None:
    """
    Offline and revoked devices are forgotten. A device that still reports stays, and so does a revoked device
    that still sends requests.
    """
    rules = fleet.with_settings(forget_after=10 * DAY_S)
    for id in ("silent", "revoked", "asking", "heard"):
        await fleet.enrol(id)
    for id in ("revoked", "asking"):
        await rules.revoke_device(id, ADA)
    fleet.clock.move(10 * DAY_S)
    assert 0 == await rules.delete_silent_devices()
    await fleet.enrol("heard")
    with pytest.raises(Refusal, match="revoked"):
        await fleet.enrol("asking")
    fleet.clock.move(HEARD_EVERY_S)
    assert 2 == await rules.delete_silent_devices()
    assert {"asking", "heard"} == fleet.ids()
    assert [("device.forget", "revoked"), ("device.forget", "silent")] == sorted(fleet.audited[-2:])


async def test_none_is_forgotten_soon_after_a_start(fleet: Fleet) -> None:
    """
    After a long outage the server first waits for its devices to report. With `forget_after = 0` it forgets none.
    """
    await fleet.enrol("laptop")
    fleet.clock.move(400 * DAY_S)
    rules = fleet.with_settings(forget_after=DAY_S)
    assert 0 == await rules.delete_silent_devices()
    fleet.clock.move(GRACE_S)
    never = fleet.with_settings(forget_after=0)
    fleet.clock.move(GRACE_S)
    assert await never.delete_silent_devices() == 0
    assert await rules.delete_silent_devices() == 1


async def test_a_fleet_with_churn_stays_inside_the_limit(fleet: Fleet) -> None:
    """
    A tenth of the fleet is replaced each day. The table stays within its limit, and every new device is accepted.
    """
    # the fleet uses seven keys, because each key must leave as much space free as it uses
    most, fleet_size, daily = 1200, 700, 100
    rules = fleet.with_settings(max=most, forget_after=2 * DAY_S)
    keys = [AuthenticatedKey(f"fleet-{n}", frozenset({ENROLL})) for n in range(7)]
    fleets = [f"d{n}" for n in range(fleet_size)]
    refused = 0

    async def report(id: str, place: int) -> bool:
        try:
            await rules.enrol_or_update(DeviceReport(id=id), keys[place % len(keys)], "")
        except Refusal as refusal:
            assert refusal.status == 429
            assert refusal.type == "too_many_devices"
            return False
        return True

    for day in range(5):
        taken = await asyncio.gather(*(report(id, place) for place, id in enumerate(fleets)))
        refused += taken.count(False)
        assert len(fleet.table) <= most
        fleets = fleets[daily:] + [f"new-{day}-{n}" for n in range(daily)]
        fleet.clock.move(DAY_S)
        await rules.delete_silent_devices()
    assert 0 == refused
    assert fleet_size <= len(fleet.table) <= most
    assert len(fleet.table) == len((await fleet.table._rows.load())[0])


async def test_one_too_many_finds_room_when_others_are_forgotten(fleet: Fleet) -> None:
    """
    A device beyond the limit is refused, even if an operator admits it. Once other devices are forgotten,
    it is accepted.
    """
    rules = fleet.with_settings(max=3, forget_after=DAY_S)
    for admitted in ("zero", "one"):
        await rules.admit_device(admitted, ADA)
    await fleet.enrol("two")
    with pytest.raises(Refusal, match=r"devices\.max"):
        await fleet.enrol("three")
    with pytest.raises(NotAllowed, match=r"devices\.max"):
        await rules.admit_device("three", ADA)
    fleet.clock.move(2 * DAY_S)
    await fleet.enrol("two")
    assert 2 == await rules.delete_silent_devices()
    await fleet.enrol("three")
    assert {"two", "three"} == fleet.ids()


async def test_an_operator_admits_a_device_where_enrolment_is_closed(fleet: Fleet) -> None:
    """
    If enrolment is closed, a device that an operator admitted reports and gets its key. The error for other
    devices names the command.
    """
    rules = fleet.with_settings(policy="closed")
    with pytest.raises(Refusal, match="tollhouse devices admit ID"):
        await fleet.enrol("laptop")
    admitted = await rules.admit_device("laptop", ADA)
    assert admitted.state == "enrolled"
    assert admitted.enrolled_by == "ada"
    device, key = await fleet.enrol("laptop", hostname="mill", fingerprint="f", want_key=True)
    assert "mill" == device.hostname and key is not None
    for wrong, error in (("laptop", AlreadyThere), ("no good", Invalid), ("", Invalid)):
        with pytest.raises(error):
            await rules.admit_device(wrong, ADA)
    assert [("device.admit", "laptop")] == fleet.audited


async def test_an_admitted_device_was_never_seen(fleet: Fleet) -> None:
    """Until its first report, the times for offline and forgotten devices start at the admission."""
    rules = fleet.with_settings(forget_after=DAY_S)
    [late, soon] = [await rules.admit_device(id, ADA) for id in ("late", "soon")]
    assert late.last_seen == 0.0
    assert "missing" == rules.machine_state(late).word
    fleet.clock.move(DAY_S / 2)
    assert ("missing", "unknown") == (rules.machine_state(soon).word, rules.machine_state(soon).link)
    rules.note_alive("soon", FLEET)
    assert [0.0, fleet.clock.now()] == sorted(device.last_seen for device in fleet.table.all())
    assert 0 == await rules.delete_silent_devices()
    fleet.clock.move(DAY_S / 2 + 1)
    assert 1 == await rules.delete_silent_devices()
    assert {"soon"} == fleet.ids()


async def test_admitted_device_that_reports_late_needs_a_reset(fleet: Fleet) -> None:
    """
    If an admitted device reports more than an hour later, it gets no key before an operator resets it,
    because the requester may be another machine.
    """
    rules = fleet.with_settings(policy="closed")
    await rules.admit_device("laptop", ADA)
    fleet.clock.move(3601)
    assert None is (await fleet.enrol("laptop", want_key=True))[1]
    await rules.reset_device("laptop", ADA)
    assert None is not (await fleet.enrol("laptop", want_key=True))[1]


async def test_a_deleted_device_does_not_come_back_by_a_touch(fleet: Fleet) -> None:
    """An update from before the deletion of a device is not stored."""
    device, _ = await fleet.enrol("laptop")
    fleet.table.change_and_write_soon(device.id, lambda known: replace(known, last_seen=known.last_seen + 1))
    await fleet.rules.delete_device("laptop", ADA)
    await fleet.table.flush()
    assert set() == fleet.ids()


class HeardElsewhere(SqliteDevices):
    """The rows of shared storage, in which another gateway stores that it has heard a device."""

    is_shared = True
    heard: Device | None = None

    async def rows_changed_elsewhere(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        return {} if self.heard is None else {self.heard.id: self.heard}


async def test_a_device_that_another_gateway_has_heard_is_not_forgotten() -> None:
    """
    A device stays if another gateway has heard it, although this gateway has not read that newer time yet.
    """
    rows, clock = HeardElsewhere(MemoryDatabase(SPOOL)), MovedClock()
    fleet = Fleet(await DeviceTable.open(rows), clock)
    fleet.with_settings(forget_after=DAY_S)
    device, _ = await fleet.enrol("laptop")
    await fleet.enrol("gone")
    clock.move(DAY_S + 1)
    rows.heard = replace(device, last_seen=clock.now())
    assert 1 == await fleet.rules.delete_silent_devices()
    assert {"laptop"} == fleet.ids()
    await fleet.table.close()
