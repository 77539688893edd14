"""Rows of the fleet as time passes and devices report: a reused row never differs from a new one."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest_asyncio

from gateway.configuration.sections import DeviceSettings
from gateway.devices.fleet.facts import CAUSES
from gateway.devices.fleet.fleet import Fleet
from gateway.devices.lifecycle import DeviceLifecycle
from spool.devices.device import Device
from spool.devices.table import DeviceTable
from spool.record import moment
from spool.registry.tables.inventory import Inventory, Machine
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.in_memory import MemoryDatabase
from tests.moved_clock import MovedClock

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


async def test_states_change_with_time_alone(table: DeviceTable) -> None:
    """A use without a call, the silence of an agent, and the age of the newest call."""
    clock = MovedClock()
    settings = DeviceSettings(heartbeat_interval=30 * 86_400.0)
    fleet = Fleet(DeviceLifecycle(table, settings=settings, clock=clock, secret=b"s" * 32), lambda: None)
    used = {"state": "unused", "used_at": moment(clock.now())}
    await table.keep(device("used", clock, codex=used))
    calling = device("calling", clock, codex={"state": "unused"})
    await table.keep(replace(calling, newest_calls={"codex": clock.now()}))

    async def states() -> dict[str, str]:
        return {row.id: row.assistants[0].state for row in await fleet.rows()}

    assert {"used": "unused", "calling": "reporting"} == await states()
    clock.move(HOUR + 601)
    assert {"used": "unreachable", "calling": "reporting"} == await states()
    clock.move(14 * 86_400)
    assert {"used": "unreachable", "calling": "unused"} == await states()
    clock.move(80 * 86_400)
    assert ["silent", "silent"] == [row.state for row in await fleet.rows()]


async def test_a_reused_row_equals_a_new_one(table: DeviceTable) -> None:
    """Over 300 random steps of time, reports, deletions and imports, the rows equal those of a fleet without memory."""
    chosen, clock = random.Random(7), MovedClock()
    lifecycle = DeviceLifecycle(table, settings=DeviceSettings(), clock=clock, secret=b"s" * 32)
    current = [inventory("S0", "S1", "S9")]
    fleet = Fleet(lifecycle, lambda: current[0])
    for step in range(300):
        id = f"S{chosen.randrange(6)}"
        known = table.find(id)
        state = chosen.choice(list(CAUSES))
        claim = {"state": state, "used_at": moment(clock.now() - chosen.choice((0.0, HOUR, 30 * HOUR)))}
        match chosen.randrange(6):
            case 0:
                await table.keep(device(id, clock, codex=claim))
            case 1 if known is not None:
                await table.keep(replace(known, last_seen=clock.now(), last_heartbeat=clock.now()))
            case 2 if known is not None:
                await table.keep(
                    replace(known, newest_calls={"codex": clock.now()}, last_telemetry=clock.now())
                )
            case 3 if known is not None:
                await table.delete([id], [])
            case 4:
                current[0] = inventory(*chosen.sample([f"S{n}" for n in range(9)], 4))
            case _:
                clock.move(chosen.choice((1.0, 100.0, 4201.0, 86_400.0, 15 * 86_400.0)))
        assert await Fleet(lifecycle, lambda: current[0]).rows() == await fleet.rows(), step
