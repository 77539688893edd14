"""Storage without a disk: the same answers, nothing kept after the process."""

from __future__ import annotations

from dataclasses import dataclass

from spool.clock import Clock
from spool.devices.table import DeviceTable
from spool.log.protocols import Observer
from spool.memory.deliveries import MemoryDeliveries
from spool.memory.devices import MemoryDevices
from spool.memory.log import MemoryLog
from spool.memory.partial_reports import MemoryHeard, MemoryPartialReports
from spool.memory.tables import MemoryTables, spool_tables
from spool.settings import SpoolSettings
from spool.sql.streams import SqlStreams

__all__ = ["MemorySpool", "open_spool"]


@dataclass(frozen=True, kw_only=True)
class MemorySpool:
    """A log and what moves with it."""

    log: MemoryLog
    deliveries: MemoryDeliveries
    partial_reports: MemoryPartialReports
    heard: MemoryHeard
    devices: DeviceTable
    streams: SqlStreams
    tables: MemoryTables

    async def close(self) -> None:
        await self.devices.close()
        await self.log.close()


async def open_spool(
    *, settings: SpoolSettings, clock: Clock, observer: Observer | None = None
) -> MemorySpool:
    tables = spool_tables()
    log = MemoryLog(tables, settings=settings, clock=clock, observer=observer)
    deliveries = MemoryDeliveries(log, tables, clock=clock)
    log.routes = deliveries
    return MemorySpool(
        log=log,
        deliveries=deliveries,
        partial_reports=log.partial_reports,
        heard=log.heard,
        devices=await DeviceTable.open(MemoryDevices()),
        streams=log.streams,
        tables=tables,
    )
