"""
Matching of devices with machines of the inventory: by serial number, else by hostname without its domain.

A serial number or hostname in a heartbeat is a claim. A match makes a device expected, but gives it no right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gateway.devices.fleet.heartbeat_facts import decode_heartbeat, hash_serial
from gateway.devices.states import SAME_HARDWARE
from spool.devices.device import ENROLLED, PENDING, Device
from spool.registry.tables.inventory import Machine


class ExpectedMachines:
    """The machines of the inventory, for look-ups. A hostname that occurs twice identifies no machine."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = machines
        # device id -> what its heartbeat claims and, at the end, its place in the list; cached, because decoding is
        # expensive
        self._places: dict[str, tuple[str, str, bytes, int | None]] = {}
        self._by_serial = {
            machine.serial.casefold(): place for place, machine in enumerate(machines) if machine.serial
        }
        self._by_serial_hash = {hash_serial(serial): place for serial, place in self._by_serial.items()}
        counts = Counter(folded_short_hostname(machine.hostname) for machine in machines)
        self._by_hostname = {
            name: place
            for place, machine in enumerate(machines)
            if (name := folded_short_hostname(machine.hostname)) and counts[name] == 1
        }

    def find_machine(self, device: Device) -> Machine | None:
        """Return the machine that a device claims to be. Several devices may claim the same one."""
        if not self.machines:
            return None
        place = self._remembered_position(device)
        return None if place is None else self.machines[place]

    def has_machine(self, *, serial: str, hostname: str, serial_hash: str = "") -> bool:
        return self.machine_position(serial=serial, hostname=hostname, serial_hash=serial_hash) is not None

    def machine_position(self, *, serial: str, hostname: str, serial_hash: str = "") -> int | None:
        """
        Return a machine's position, or None. If both serial numbers are known and differ, an equal hostname
        is no match. The hash counts if the serial number itself is not stated.
        """
        found = self._by_serial.get(serial.casefold()) if serial else self._by_serial_hash.get(serial_hash)
        if found is None:
            found = self._by_hostname.get(folded_short_hostname(hostname))
            if found is not None and (serial or serial_hash) and self.machines[found].serial:
                return None
        return found

    def match_devices(self, devices: Iterable[Device]) -> tuple[Mapping[str, int], Mapping[int, Device]]:
        """
        Return the machine of each matched device (its position in the list, by device id), and the device of
        each position.

        If several devices claim to be one machine, the enrolled device that reported last is the machine. The
        others are unexpected. If a machine was installed again, its new device, which waits for approval,
        also counts as the machine.
        """
        if not self.machines:
            return {}, {}
        device_of: dict[int, Device] = {}
        waiting: dict[int, list[Device]] = defaultdict(list)
        ids = set()
        for device in devices:
            ids.add(device.id)
            place = self._remembered_position(device)
            if place is not None:
                rival = device_of.get(place)
                if rival is None or _device_preference_rank(rival) < _device_preference_rank(device):
                    device_of[place] = device
                if device.state == PENDING and device.cause == SAME_HARDWARE:
                    waiting[place].append(device)
        for place, again in waiting.items():
            before = device_of[place]
            later = [each for each in again if _is_reinstallation_of(each, before)]
            device_of[place] = max(later, key=_device_preference_rank, default=before)
        if len(self._places) > len(ids):
            self._places = {id: known for id, known in self._places.items() if id in ids}
        return {device.id: place for place, device in device_of.items()}, device_of

    def _remembered_position(self, device: Device) -> int | None:
        claims = device.serial, device.hostname, device.heartbeat
        known = self._places.get(device.id)
        place = self._find_position_of_device(device) if known is None or known[:3] != claims else known[3]
        # replace equal claims as well, so that the objects of the earlier heartbeat are freed
        self._places[device.id] = *claims, place
        return place

    def _find_position_of_device(self, device: Device) -> int | None:
        # with managed settings and no agent, the device id is the serial number
        place = self._by_serial.get(device.id.casefold())
        if place is not None:
            return place
        return self.machine_position(
            serial=serial_of_device(device),
            hostname=device.hostname,
            serial_hash=reported_serial_hash(device),
        )


NOBODY = ExpectedMachines(())


def serial_of_device(device: Device) -> str:
    """Return the serial number of a device: of its enrolment token, else the reported one, else ""."""
    if device.serial:
        return device.serial
    return (
        str(decode_heartbeat(device.heartbeat).get("serial") or "") if b'"serial"' in device.heartbeat else ""
    )


def reported_serial_hash(device: Device) -> str:
    if b'"serial_hash"' not in device.heartbeat:
        return ""
    return str(decode_heartbeat(device.heartbeat).get("serial_hash") or "")


def folded_short_hostname(hostname: str) -> str:
    return hostname.partition(".")[0].strip().casefold()


def _is_reinstallation_of(device: Device, before: Device) -> bool:
    is_same = device.hardware_id != "" and device.hardware_id == before.hardware_id
    return is_same and device.enrolled_at > before.last_seen


def _device_preference_rank(device: Device) -> tuple[bool, float, str]:
    return device.state == ENROLLED, device.last_seen, device.id
