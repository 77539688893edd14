"""The fleet as of now: rows from the device table and the inventory. States that still hold are reused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from math import inf
from typing import NamedTuple

from gateway.devices.fleet.assistant_states import RECENT_S, AssistantState, assistants_of, holds_until
from gateway.devices.fleet.coverage import FleetCoverage, FleetRow, coverage_of, device_row, missing_row
from gateway.devices.fleet.facts import decoded, is_collector
from gateway.devices.fleet.matching import ExpectedMachines
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.states import silent_after
from spool.devices.device import Device, is_device_id
from spool.registry.operators import Actor
from spool.registry.tables.inventory import Inventory, Machine
from spool.turns.fair_turns import pause_when_due

ADMITTED_AT_ONCE = 500  # devices that one transaction adds
ROWS_PER_STEP = 200  # rows after which other requests get a turn, if it is due


class _Known(NamedTuple):
    """
    A row that was made earlier. It holds until `until`, and the states of its assistants until `states_until`, if
    its device does not change.
    """

    row: FleetRow
    os: str
    states_until: float
    until: float
    interval_s: float


class Fleet:
    """Makes the rows of the fleet. `inventory` returns the newest inventory, or None."""

    def __init__(self, lifecycle: DeviceLifecycle, inventory: Callable[[], Inventory | None]) -> None:
        self._lifecycle = lifecycle
        self._inventory = inventory
        self._known: dict[str, _Known] = {}
        self._expected: tuple[Inventory | None, ExpectedMachines] = (None, ExpectedMachines(()))

    @property
    def inventory(self) -> Inventory | None:
        return self._inventory()

    def expected(self) -> ExpectedMachines:
        """Return the machines of the inventory. Without an inventory, no machine is expected."""
        inventory = self._inventory()
        if self._expected[0] is not inventory:
            machines = () if inventory is None else inventory.machines
            self._expected = inventory, ExpectedMachines(machines)
        return self._expected[1]

    def _machines(self) -> list[Device]:
        # a replaced device is an earlier life of a machine that is in the list under its new id
        devices = self._lifecycle.table.all()
        return [device for device in devices if not (device.replaced_by or is_collector(device.id))]

    async def rows(self) -> list[FleetRow]:
        """Return a row for each device and for each expected machine without a device."""
        now, interval_s = self._lifecycle.now(), self._lifecycle.interval_s
        devices = self._machines()
        expected = self.expected()
        place_of, device_of = expected.matched(devices)
        rows = []
        for number, device in enumerate(devices):
            place = place_of.get(device.id)
            machine = None if place is None else expected.machines[place]
            rows.append(self._row(device, machine, now=now, interval_s=interval_s))
            if number % ROWS_PER_STEP == 0:
                await pause_when_due()
        rows += [missing_row(each) for place, each in enumerate(expected.machines) if place not in device_of]
        self._forget({device.id for device in devices})
        return rows

    async def coverage(self) -> FleetCoverage:
        return coverage_of(await self.rows(), has_inventory=self._inventory() is not None)

    async def admit_machines(self, actor: Actor) -> int:
        """
        Enrol the serial number of each expected machine without a device, for machines that send without an agent.
        Return the number of new devices. Serial numbers that cannot be device ids are left out.
        """
        expected = self.expected()
        _, device_of = expected.matched(self._machines())
        serials = [
            machine.serial
            for place, machine in enumerate(expected.machines)
            if place not in device_of and is_device_id(machine.serial)
        ]
        for first in range(0, len(serials), ADMITTED_AT_ONCE):
            step = serials[first : first + ADMITTED_AT_ONCE]
            await asyncio.gather(*(self._lifecycle.admit(serial, actor) for serial in step))
        return len(serials)

    def _row(self, device: Device, machine: Machine | None, *, now: float, interval_s: float) -> FleetRow:
        """Return the row of a device. The earlier row is reused while nothing that it shows can have changed."""
        known = self._known.get(device.id)
        if (
            known is not None
            and known.row.device is device
            and known.row.machine is machine
            and known.interval_s == interval_s
            and now < known.until
        ):
            return known.row
        assistants, os, states_until = self._assistants(device, known, now)
        row = device_row(device, machine, assistants, os=os, now=now, interval_s=interval_s)
        until = min((at for at in _changes(device, interval_s) if at >= now), default=inf)
        self._known[device.id] = _Known(
            row=row, os=os, states_until=states_until, until=min(until, states_until), interval_s=interval_s
        )
        return row

    def _assistants(
        self, device: Device, known: _Known | None, now: float
    ) -> tuple[tuple[AssistantState, ...], str, float]:
        """
        Return the states of a device's assistants, its system, and the time until which the states hold. A report
        that only shows that the device is alive does not change them.
        """
        before = None if known is None else known.row.device
        if (
            known is not None
            and before is not None
            and before.heartbeat is device.heartbeat
            and before.newest_calls is device.newest_calls
            and before.enrolled_at == device.enrolled_at
            and now < known.states_until
        ):
            return known.row.assistants, known.os, known.states_until
        os = str(decoded(device.heartbeat).get("os") or "") if b'"os"' in device.heartbeat else ""
        return tuple(assistants_of(device, now=now)), os, holds_until(device, now=now)

    def _forget(self, there: Collection[str]) -> None:
        """Forget the rows of deleted devices."""
        if len(self._known) > len(there):
            self._known = {id: known for id, known in self._known.items() if id in there}


def _changes(device: Device, interval_s: float) -> tuple[float, float]:
    """Return the times at which the device becomes silent, and at which its telemetry is no longer recent."""
    heard = device.last_telemetry
    return silent_after(device, interval_s), inf if heard is None else heard + RECENT_S
