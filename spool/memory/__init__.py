"""The spool without a disk: the same log and deliveries, nothing kept after the process."""

from __future__ import annotations

from spool.clock import Clock
from spool.devices import DeviceTable
from spool.log.protocols import Observer
from spool.memory.deliveries import MemoryDeliveries
from spool.memory.devices import MemoryDevices
from spool.memory.log import MemoryLog
from spool.settings import SpoolSettings

__all__ = ["MemorySpool", "open_spool"]


class MemorySpool:
    """A log and its deliveries in memory."""

    def __init__(self, log: MemoryLog, deliveries: MemoryDeliveries, devices: DeviceTable) -> None:
        self.log = log
        self.deliveries = deliveries
        self.partial_reports = log.partial_reports
        self.devices = devices
        self.streams = log.streams

    async def close(self) -> None:
        await self.devices.close()
        await self.log.close()


async def open_spool(*, settings: SpoolSettings, clock: Clock, observer: Observer | None = None) -> MemorySpool:
    log = MemoryLog(settings=settings, clock=clock, observer=observer)
    deliveries = MemoryDeliveries(log, clock=clock)
    log.routes = deliveries
    return MemorySpool(log, deliveries, await DeviceTable.open(MemoryDevices()))
