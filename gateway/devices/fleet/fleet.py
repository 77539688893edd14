"""
The current fleet: rows from the device table and the inventory. Rows whose state has not changed are reused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gateway.devices.fleet.coverage import (
    FleetCoverage,
    FleetRow,
    MachineNames,
    fleet_row_of_device,
    fleet_row_of_machine_without_device,
    machine_names,
    measure_coverage,
)
from gateway.devices.fleet.heartbeat_facts import decode_heartbeat, has_cluster_label
from gateway.devices.fleet.matching import NOBODY, ExpectedMachines
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.machine_state import MachineState
from spool.devices.device import Device, is_device_id
from spool.registry.operators import Actor
from spool.registry.tables.inventory import Inventory, Machine
from spool.turns.fair_turns import pause_if_step_was_long

ADMITTED_AT_ONCE = 500  # devices that one transaction admits
DAY_S = 86_400.0
ROWS_PER_STEP = 200  # rows after which other requests get a turn


class _CachedFleetRow(NamedTuple):
    """A computed row of the fleet. It can be reused while the device has the same state object."""

    row: FleetRow
    state: MachineState


class Fleet:
    """The machines that report or should report. `inventory` returns the newest inventory, or None."""

    def __init__(self, lifecycle: DeviceLifecycle, inventory: Callable[[], Inventory | None]) -> None:
        self._lifecycle = lifecycle
        self._inventory = inventory
        self._known: dict[str, _CachedFleetRow] = {}
        lifecycle.table.watchers.append(self._forget_row)
        self._expected = self._next_expected = _index_machines(inventory())

    @property
    def inventory(self) -> Inventory | None:
        return self._inventory()

    def prepare_list(self, inventory: Inventory | None) -> None:
        """Index a list on a thread, before it becomes the current one. A long list takes a second."""
        self._next_expected = _index_machines(inventory)

    def expected_machines(self) -> ExpectedMachines:
        inventory, prepared = self._inventory(), self._next_expected
        if self._expected[0] is not inventory:
            self._expected = prepared if prepared[0] is inventory else _index_machines(inventory)
        return self._expected[1]

    def _devices_of_people(self) -> list[Device]:
        # A replaced device is an earlier life of a machine with a new id. Agents of clusters are no machines of people.
        return [
            device
            for device in self._lifecycle.table.all()
            if not (device.replaced_by or has_cluster_label(device.all_labels))
        ]

    async def machine_rows(self) -> list[FleetRow]:
        """Return the rows of all devices, and of expected machines without a device."""
        inventory = self._inventory()
        listed_at = 0.0 if inventory is None else inventory.imported
        heard_since = self._lifecycle.now() - self._lifecycle.settings.coverage_days * DAY_S
        rows = []
        for number, (device, machine) in enumerate(self._device_machine_pairs()):
            if device is not None:
                rows.append(self._find_or_build_row(device, machine, heard_since))
            elif machine is not None:
                rows.append(
                    _row_marked_away_if_unheard(
                        fleet_row_of_machine_without_device(machine, listed_at=listed_at), heard_since
                    )
                )
            if number % ROWS_PER_STEP == 0:
                await pause_if_step_was_long()
        self._forget_rows_except({row.device.id for row in rows if row.device is not None})
        return rows

    def all_machine_names(self) -> Iterator[MachineNames]:
        """Yield the names of all machines of the fleet. No state is computed."""
        return (machine_names(device, machine) for device, machine in self._device_machine_pairs())

    def users_of_devices(self) -> dict[str, str]:
        return {
            device.id: machine_names(device, machine).user
            for device, machine in self._device_machine_pairs()
            if device is not None
        }

    def _device_machine_pairs(self) -> Iterator[tuple[Device | None, Machine | None]]:
        """Yield each device with the machine that it is, then the expected machines without a device."""
        devices, expected = self._devices_of_people(), self.expected_machines()
        place_of, device_of = expected.match_devices(devices)
        for device in devices:
            place = place_of.get(device.id)
            yield device, None if place is None else expected.machines[place]
        for place, machine in enumerate(expected.machines):
            if place not in device_of:
                yield None, machine

    def measure_coverage(self, rows: Sequence[FleetRow]) -> FleetCoverage:
        return measure_coverage(rows, has_inventory=self._inventory() is not None)

    async def machine_rows_in_use(self) -> list[FleetRow]:
        return [row for row in await self.machine_rows() if not row.is_away]

    async def enrol_machines_without_agent(self, actor: Actor) -> int:
        """
        Enrol serial numbers of machines that send without an agent, and return their number.

        Serial numbers that cannot be device ids are left out.
        """
        serials = [
            machine.serial
            for device, machine in self._device_machine_pairs()
            if device is None and machine is not None and is_device_id(machine.serial)
        ]
        for first in range(0, len(serials), ADMITTED_AT_ONCE):
            step = serials[first : first + ADMITTED_AT_ONCE]
            await asyncio.gather(*(self._lifecycle.admit_device(serial, actor) for serial in step))
        return len(serials)

    def _find_or_build_row(self, device: Device, machine: Machine | None, heard_since: float) -> FleetRow:
        state = self._lifecycle.machine_state(device)
        known = self._known.get(device.id)
        if known is not None:
            row = known.row
            is_same = row.device is device and row.machine is machine and known.state is state
            if is_same and row.is_away == (row.heard_at < heard_since):
                return row
        row = _row_marked_away_if_unheard(
            fleet_row_of_device(device, machine, state, os=_reported_os(device)), heard_since
        )
        self._known[device.id] = _CachedFleetRow(row, state)
        return row

    def _forget_row(self, id: str) -> None:
        self._known.pop(id, None)

    def _forget_rows_except(self, kept_ids: Collection[str]) -> None:
        if len(self._known) > len(kept_ids):
            self._known = {id: known for id, known in self._known.items() if id in kept_ids}


def _index_machines(inventory: Inventory | None) -> tuple[Inventory | None, ExpectedMachines]:
    return inventory, NOBODY if inventory is None else ExpectedMachines(inventory.machines)


def _row_marked_away_if_unheard(row: FleetRow, heard_since: float) -> FleetRow:
    return replace(row, is_away=True) if row.heard_at < heard_since else row


def _reported_os(device: Device) -> str:
    return str(decode_heartbeat(device.heartbeat).get("os") or "") if b'"os"' in device.heartbeat else ""
