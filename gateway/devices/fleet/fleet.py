"""The fleet as of now: rows from the device table and the inventory. States that still hold are reused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import NamedTuple

from gateway.devices.fleet.assistant_states import RECENT_S, AssistantState, assistants_of
from gateway.devices.fleet.coverage import FleetCoverage, FleetRow, coverage_of, device_row, missing_row
from gateway.devices.fleet.facts import decoded, is_collector
from gateway.devices.fleet.matching import ExpectedMachines
from gateway.devices.lifecycle import DeviceLifecycle
from spool.devices.device import Device, is_device_id
from spool.registry.operators import Actor
from spool.registry.tables.inventory import Inventory
from spool.turns.fair_turns import pause_when_due

ADMITTED_AT_ONCE = 500  # devices that one transaction adds


class _Evaluated(NamedTuple):
    """The states of a device's assistants, what they were made from, and the time until which they hold."""

    heartbeat: bytes
    newest_calls: Mapping[str, float]
    enrolled_at: float
    until: float
    assistants: tuple[AssistantState, ...]
    os: str


class Fleet:
    """Makes the rows of the fleet. `inventory` returns the newest inventory, or None."""

    def __init__(self, lifecycle: DeviceLifecycle, inventory: Callable[[], Inventory | None]) -> None:
        self._lifecycle = lifecycle
        self._inventory = inventory
        self._evaluated: dict[str, _Evaluated] = {}
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
        for device in devices:
            place = place_of.get(device.id)
            machine = None if place is None else expected.machines[place]
            evaluated = self._evaluate(device, now)
            rows.append(
                device_row(
                    device, machine, evaluated.assistants, os=evaluated.os, now=now, interval_s=interval_s
                )
            )
            await pause_when_due()
        for place, machine in enumerate(expected.machines):
            if place not in device_of:
                rows.append(missing_row(machine))
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

    def _evaluate(self, device: Device, now: float) -> _Evaluated:
        known = self._evaluated.get(device.id)
        if (
            known is not None
            and known.heartbeat is device.heartbeat
            and known.newest_calls is device.newest_calls
            and known.enrolled_at == device.enrolled_at
            and now < known.until
        ):
            return known
        assistants = tuple(assistants_of(device, now=now))
        changes = [time + RECENT_S for time in device.newest_calls.values()]
        os = str(decoded(device.heartbeat).get("os") or "") if b'"os"' in device.heartbeat else ""
        evaluated = self._evaluated[device.id] = _Evaluated(
            heartbeat=device.heartbeat,
            newest_calls=device.newest_calls,
            enrolled_at=device.enrolled_at,
            until=min((time for time in changes if time >= now), default=inf),
            assistants=assistants,
            os=os,
        )
        return evaluated

    def _forget(self, there: Collection[str]) -> None:
        """Forget the states of deleted devices."""
        if len(self._evaluated) > len(there):
            self._evaluated = {id: known for id, known in self._evaluated.items() if id in there}
