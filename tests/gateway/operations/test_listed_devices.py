"""The incremental list of devices equals a list computed from all devices, at far lower cost."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import pytest
import pytest_asyncio

from gateway.configuration.sections import DeviceSettings
from gateway.devices.fleet.matching import ExpectedMachines
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.machine_state import LINKS, MISSED, WORDS
from gateway.devices.states import last_seen_updater
from gateway.http import lists
from gateway.http.lists import MemoryRows, Rows, list_envelope
from gateway.operations.devices.devices import DEVICES, DeviceWithState
from gateway.operations.devices.listed_devices import ListedDevices
from spool.devices.device import ENROLLED, PENDING, REVOKED, Device
from spool.devices.table import DeviceTable
from spool.people import People
from spool.registry.tables.inventory import Machine
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG

RECENT_S = 14 * 86_400  # docs/fleet/coverage.md: within 14 days
PEOPLE = People.for_installation(b"p")
INTERVAL_S = 60.0
Query = list[tuple[str, str]]


@dataclass
class Fleet:
    table: DeviceTable
    clock: MovedClock
    lifecycle: DeviceLifecycle
    listed: ListedDevices

    async def put(self, id: str, **fields: Any) -> None:
        """Add or change a device."""
        now = self.clock.now()
        known = self.table.find(id) or Device(id=id, enrolled_at=now, enrolled_by="fleet", last_seen=now)
        await self.table.replace_row(replace(known, **fields))

    async def delete(self, id: str) -> None:
        await self.table.delete([id], [])

    async def grow_to(self, count: int) -> None:
        await asyncio.gather(*(
            self.put(f"d{n:05}", state=(PENDING, REVOKED, ENROLLED, ENROLLED)[n % 4], hostname=f"Host-{n % 97}")
            for n in range(len(self.table), count)
        ))  # fmt: skip

    async def get(self, query: Query, rows: Rows[DeviceWithState] | None = None) -> dict[str, Any]:
        rows = self.listed if rows is None else rows
        return await list_envelope(
            DEVICES, rows, query, secret=b"s" * 32, people=PEOPLE, now=self.clock.now()
        )

    async def derived(self, query: Query) -> dict[str, Any]:
        """Compute the page from all devices and their current states."""
        shown = [DeviceWithState(device, self.lifecycle.machine_state(device)) for device in self.table.all()]
        return await self.get(query, MemoryRows(shown))


@pytest_asyncio.fixture
async def fleet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    # the profiler does not count calls in other threads, so all work stays on this thread
    monkeypatch.setattr(lists, "BESIDE_ROWS", sys.maxsize)
    table, clock = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL))), MovedClock()
    lifecycle = DeviceLifecycle(table, settings=DeviceSettings(), clock=clock, secret=b"s" * 32)
    yield Fleet(table, clock, lifecycle, ListedDevices(lifecycle, clock))
    await table.close()


async def calls_of(fleet: Fleet, query: Query) -> int:
    """Count the function calls that one page needs."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # finalizers of earlier tasks would count as calls
    sys.setprofile(count)
    try:
        await fleet.get(query)
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


QUERIES: Sequence[Query] = [
    [],
    [("sort_key", "last_seen"), ("sort_order", "desc")],
    [("sort_key", "state")],
    [("state", "reporting"), ("sort_key", "hostname")],
    [("state", "pending"), ("state", "unknown")],
]


async def test_a_page_costs_the_same_in_a_large_fleet(fleet: Fleet) -> None:
    """Ten times the devices add only binary-search steps, on the first page and on the next."""
    counted: dict[int, list[int]] = {300: [], 3000: []}
    for count, found in counted.items():
        await fleet.grow_to(count)
        for query in QUERIES:
            page = await fleet.get(query)  # the first query sorts the rows
            following = page["pagination"]["cursor"]["next_cursor"]
            fleet.clock.move(1)
            await fleet.put("d00002", last_seen=fleet.clock.now())
            first = await calls_of(fleet, query)
            found.append(first + (await calls_of(fleet, [("cursor", following)]) if following else 0))
    for small, large, query in zip(*counted.values(), QUERIES, strict=True):
        assert large < 1.2 * small, query


async def test_reports_pay_for_states_that_fall_due(fleet: Fleet) -> None:
    """
    State changes that fall due are processed when devices report. So a page does not process those of the
    whole fleet, even hours later.
    """
    await fleet.grow_to(500)
    await fleet.get([])
    counted = await calls_of(fleet, [])
    for _ in range(20):
        fleet.clock.move(INTERVAL_S)
        for device in fleet.table.all():
            fleet.table.change_and_write_soon(device.id, last_seen_updater(fleet.clock.now()))
    assert await calls_of(fleet, []) < 1.2 * counted


async def test_the_list_follows_devices_and_time(fleet: Fleet) -> None:
    """
    Devices report, change and disappear, while time advances, stops or is set back. Rows, totals, cursors and
    filter values always equal those that are computed from all devices.
    """
    dice = random.Random(3)
    sorts = [*DEVICES.sorts]
    for step in range(600 if IS_LONG else 150):
        id = f"d{dice.randrange(40)}"
        now = fleet.clock.now()
        match dice.randrange(8):
            case 0:
                await fleet.delete(id)
            case 1:
                await fleet.put(id, state=dice.choice((PENDING, ENROLLED, REVOKED)))
            case 2:
                await fleet.put(id, hostname=dice.choice("aAbB"), platform=dice.choice(("mac", "linux")))
            case 3:
                await fleet.put(id, last_seen=now, newest_calls={"codex": now})
            case 4:
                machines = [
                    Machine(serial=f"d{n}", last_seen=now, seen_before=now) for n in range(dice.randrange(40))
                ]
                expected = ExpectedMachines(machines)
                fleet.lifecycle.expected = lambda expected=expected: expected  # type: ignore[misc]
            case _:
                await fleet.put(id, last_seen=now, last_heartbeat=now)
        if dice.random() < 0.3:
            fleet.clock.move(dice.choice((0.1, INTERVAL_S, MISSED * INTERVAL_S, 7200.0, RECENT_S)))
        if dice.random() < 0.02:
            fleet.clock.set_back(100.0)
        if step == 300:
            fleet.lifecycle.configure(DeviceSettings(heartbeat_interval=2 * 86_400.0), PEOPLE)
        query = [
            ("limit", str(dice.randrange(1, 9))),
            ("sort_key", dice.choice(sorts)),
            ("sort_order", dice.choice(("asc", "desc"))),
            *(("state", state) for state in dice.sample(WORDS, dice.randrange(3))),
            *(("link", link) for link in dice.sample(LINKS, dice.choice((0, 0, 1)))),
            *(("hostname", name) for name in dice.sample("aAbB", dice.choice((0, 0, 1)))),
            *(("no_report_for", age) for age in dice.sample(("60s", "2h", "1d"), dice.choice((0, 0, 1)))),
            *(("no_call_for", age) for age in dice.sample(("60s", "2h", "1d"), dice.choice((0, 0, 1)))),
        ]
        page = await fleet.get(query)
        assert await fleet.derived(query) == page
        for word in ("next", "next", "previous"):
            if cursor := page["pagination"]["cursor"][f"{word}_cursor"]:
                page = await fleet.get([("cursor", cursor)])
                assert await fleet.derived([("cursor", cursor)]) == page


async def test_a_first_page_at_the_very_moment_when_a_device_falls_silent(fleet: Fleet) -> None:
    """At the exact deadline a device is not offline yet, even on a first page. A moment later it is."""
    fleet.clock.move(1)  # the event loop gets no turn for a quarter of a second
    await fleet.put("d1", last_heartbeat=fleet.clock.now())
    for move_s, expected in ((MISSED * INTERVAL_S, 0), (0.001, 1)):
        fleet.clock.move(move_s)
        page = await fleet.get([("link", "offline")])
        assert expected == page["pagination"]["total_count"]


async def test_changes_while_the_first_page_is_made(fleet: Fleet) -> None:
    """
    If devices change while the first page is made, the page shows the changes. If its client gives up, the
    next page has all devices.
    """
    await fleet.grow_to(100)
    for is_cancelled in (True, False):
        first = asyncio.create_task(fleet.get([]))
        await asyncio.sleep(0)
        await fleet.put("d00000", state=REVOKED, hostname="other")
        await fleet.put(f"new {is_cancelled}")
        await fleet.delete(f"d0000{1 + is_cancelled}")
        assert not first.done()
        if is_cancelled:
            first.cancel()
    assert await fleet.derived([]) == await first == await fleet.get([])


async def test_values_of_filters_follow_the_rows(fleet: Fleet) -> None:
    """A platform is listed as long as one device has it."""
    await fleet.put("d1", platform="mac")
    await fleet.put("d2", platform="linux")
    await fleet.put("d3", platform="mac")
    assert ["linux", "mac"] == _platforms(await fleet.get([]))
    await fleet.put("d1", platform="linux")
    assert ["linux", "mac"] == _platforms(await fleet.get([]))
    await fleet.delete("d3")
    assert ["linux"] == _platforms(await fleet.get([("state", "pending")]))


def _platforms(page: dict[str, Any]) -> list[str]:
    [found] = [each["valid_values"] for each in page["filtering"]["available"] if each["field"] == "platform"]
    return list(found)
