"""Rows of the fleet as time passes and devices report: a reused row never differs from a new one."""

from __future__ import annotations

import gc
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest_asyncio

from gateway.configuration.sections import DeviceSettings
from gateway.devices.fleet.fleet import Fleet
from gateway.devices.fleet.heartbeat_facts import CAUSES
from gateway.devices.fleet.matching import ExpectedMachines
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.device import Device
from spool.devices.table import DeviceTable
from spool.record import utc_iso
from spool.registry.tables.inventory import Inventory, Machine
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG

HOUR = 3600.0


@pytest_asyncio.fixture
async def table() -> AsyncIterator[DeviceTable]:
    opened = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    yield opened
    await opened.close()


def inventory(*serials: str) -> Inventory:
    machines = tuple(Machine(serial=serial) for serial in serials)
    return Inventory(source="csv", imported=1.0, imported_by="ada", machines=machines)


def device(id: str, clock: MovedClock, **claims: object) -> Device:
    now = clock.now()
    heartbeat = msgspec.json.encode({"assistants": claims})
    return Device(
        id=id, enrolled_at=now - HOUR, enrolled_by="f", last_seen=now, last_heartbeat=now, heartbeat=heartbeat
    )


async def test_coverage_is_equal_at_every_hour_of_a_week(table: DeviceTable) -> None:
    """
    Machines that sleep at night and on the weekend keep their states, and a restart of the gateway changes none.
    """
    clock = MovedClock()
    made = DeviceLifecycle(table, settings=DeviceSettings(), clock=clock, secret=b"s" * 32)
    fleet = Fleet(made, lambda: None)
    claims: list[dict[str, object]] = [
        {"state": "unused"}, {"state": "overridden", "cause": "environment"}, {"state": "unknown"},
        {"state": "unreachable", "cause": "backlog"}, {"state": "unreachable", "cause": "agent_down"},
    ]  # fmt: skip
    for number, claim in enumerate(claims * 4):
        known = device(f"d{number}", clock, codex=claim)
        calls = {"codex": clock.now()} if number % 2 else {}
        await table.replace_row(replace(known, newest_calls=calls, last_seen=clock.now() - 7 * HOUR * number))

    async def figures() -> tuple[object, ...]:
        found = fleet.measure_coverage(await fleet.machine_rows())
        return found.machines, found.covered, found.away, found.states, found.causes, found.assistants

    before = await figures()
    for hour in range(7 * 24):
        clock.move(HOUR)
        assert before == await figures(), hour
    restarted = DeviceLifecycle(table, settings=DeviceSettings(), clock=clock, secret=b"s" * 32)
    fleet = Fleet(restarted, lambda: None)
    assert before == await figures()
    assert {"unknown"} == {row.link for row in await fleet.machine_rows()}


async def test_a_machine_of_which_nothing_is_heard_is_away(table: DeviceTable) -> None:
    """
    A machine that was not seen for long does not count in the coverage, and keeps its state. A check-in at the MDM,
    a call or a report brings it back.
    """
    clock = MovedClock()
    settings = DeviceSettings(coverage_days=3)
    lifecycle = DeviceLifecycle(table, settings=settings, clock=clock, secret=b"s" * 32)
    current: list[Inventory | None] = [None]
    fleet = Fleet(lifecycle, lambda: current[0])
    await table.replace_row(
        replace(device("S1", clock, codex={"state": "unused"}), newest_calls={"codex": clock.now()})
    )

    async def counted() -> tuple[int, int, int]:
        found = fleet.measure_coverage(await fleet.machine_rows())
        return found.machines, found.covered, found.away

    clock.move(3 * 24 * HOUR)
    assert (1, 1, 0) == await counted()
    clock.move(1)
    assert (0, 0, 1) == await counted()
    assert ["reporting"] == [row.state for row in await fleet.machine_rows()]
    old = current[0] = inventory("S1", "S2")  # an inventory list that was imported in 1970
    assert (0, 0, 2) == await counted()
    seen = (msgspec.structs.replace(machine, last_seen=clock.now()) for machine in old.machines)
    current[0] = replace(old, machines=tuple(seen))
    assert (2, 1, 0) == await counted()


async def test_a_late_backlog_proves_nothing_of_today(table: DeviceTable) -> None:
    """Calls count when they ended, by the corrected clock of their device, and not when they arrive."""
    clock = MovedClock()
    lifecycle = DeviceLifecycle(table, settings=DeviceSettings(), clock=clock, secret=b"s" * 32)
    await table.replace_row(replace(device("d", clock), clock_offset_s=-HOUR))
    bearer = AuthenticatedKey("fleet", frozenset())

    def newest(ended: float) -> float:
        lifecycle.note_telemetry(found(table, "d"), {"codex": ended}, bearer)
        return found(table, "d").newest_calls["codex"] - clock.now()

    assert -2 * HOUR == newest(clock.now() - 3 * HOUR)
    assert -2 * HOUR == newest(clock.now() - 20 * HOUR)
    assert 0.0 == newest(clock.now() + HOUR)  # no call ends in the future


def found(table: DeviceTable, id: str) -> Device:
    known = table.find(id)
    assert known is not None
    return known


def test_the_machine_of_a_device_keeps_no_earlier_row() -> None:
    """
    The match of devices and machines keeps no reference to earlier rows, which took 17 MiB for 10,000 devices. A
    later heartbeat may state the same.
    """
    machines = ExpectedMachines([Machine(serial="S1")])
    earlier = device("d", MovedClock(), codex={"state": "unused"})
    others = len(gc.get_referrers(earlier)), len(gc.get_referrers(earlier.heartbeat))
    for row in (earlier, replace(earlier, last_seen=1.0, heartbeat=bytes(bytearray(earlier.heartbeat)))):
        assert machines.find_machine(row) is None
    assert others == (len(gc.get_referrers(earlier)), len(gc.get_referrers(earlier.heartbeat)))


async def test_a_reused_row_equals_a_new_one(table: DeviceTable) -> None:
    """Over many random steps of time, reports, deletions and imports, rows equal those of a fleet without memory."""
    chosen, clock = random.Random(7), MovedClock()
    lifecycle = DeviceLifecycle(table, settings=DeviceSettings(), clock=clock, secret=b"s" * 32)
    current = [inventory("S0", "S1", "S9")]
    fleet = Fleet(lifecycle, lambda: current[0])
    for step in range(300 if IS_LONG else 100):
        id = f"S{chosen.randrange(6)}"
        known = table.find(id)
        state = chosen.choice(list(CAUSES))
        claim = {"state": state, "used_at": utc_iso(clock.now() - chosen.choice((0.0, HOUR, 30 * HOUR)))}
        match chosen.randrange(6):
            case 0:
                await table.replace_row(device(id, clock, codex=claim))
            case 1 if known is not None:
                await table.replace_row(replace(known, last_seen=clock.now(), last_heartbeat=clock.now()))
            case 2 if known is not None:
                await table.replace_row(
                    replace(known, newest_calls={"codex": clock.now()}, last_telemetry=clock.now())
                )
            case 3 if known is not None:
                await table.delete([id], [])
            case 4:
                current[0] = inventory(*chosen.sample([f"S{n}" for n in range(9)], 4))
            case _:
                clock.move(chosen.choice((1.0, 100.0, 4201.0, 86_400.0, 15 * 86_400.0)))
        assert await Fleet(lifecycle, lambda: current[0]).machine_rows() == await fleet.machine_rows(), step
