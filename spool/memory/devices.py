"""Devices without a disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spool.devices.device import Device, Unenrolled
from spool.devices.device_rows import NO_EXPECTATIONS, DeviceWrite, Expectations


class MemoryDevices:
    is_shared = False

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._names: dict[str, Unenrolled] = {}

    async def load(self) -> tuple[Sequence[Device], Sequence[Unenrolled]]:
        return list(self._devices.values()), list(self._names.values())

    async def write(self, wanted: DeviceWrite) -> Mapping[str, Device | None]:
        for id in wanted.deleted:
            self._devices.pop(id, None)
        self._devices.update({device.id: device for device in wanted.devices})
        self._names.update({one.name: one for one in wanted.names})
        for name in wanted.gone:
            self._names.pop(name, None)
        return {}

    async def others(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        return {}

    async def outlast_commits(self) -> None:
        """Do nothing: no other process writes."""

    async def ended(self, wanted: DeviceWrite) -> Expectations:
        return NO_EXPECTATIONS

    async def names(self) -> Sequence[Unenrolled]:
        return list(self._names.values())
