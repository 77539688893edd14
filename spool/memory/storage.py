"""Opens a storage in memory."""

from __future__ import annotations

import secrets

from spool.clusters import ClusterTable
from spool.container_files.files import ContainerFiles
from spool.ledger.ledger import Ledger
from spool.memory import open_spool
from spool.memory.container_contents import MemoryContents
from spool.memory.ledger import MemoryLedger
from spool.memory.registry import MemoryRegistry
from spool.registry.registry import Registry
from spool.sql.clusters import SqlClusters
from spool.sql.container_rows import SqlContainerRows
from spool.sql.small import SmallTables
from spool.storage import Engine, Storage, StorageOptions
from spool.streams import StreamBook


async def open_storage(options: StorageOptions) -> Storage:
    """See `spool.engines.open_storage`. The data directory is neither read nor written."""
    secret = secrets.token_bytes(32)
    spool = await open_spool(settings=options.settings, clock=options.clock, observer=options.observer)
    ledger = Ledger(MemoryLedger(), clock=options.clock, tags=options.ledger_tags, chunk=options.ledger_chunk)
    spool.log.readers.append(ledger.needs)
    clock = options.registry_clock or options.clock
    registry = await Registry.open(MemoryRegistry(), secret=secret, clock=clock, declared=options.declared)
    return Storage(
        log=spool.log,
        deliveries=spool.deliveries,
        partial_reports=spool.partial_reports,
        heard=spool.heard,
        devices=spool.devices,
        clusters=await ClusterTable.open(SqlClusters(spool.tables), clock=options.clock),
        streams=spool.streams,
        book=StreamBook([]),
        small=SmallTables(lambda _: spool.tables),
        container_files=await ContainerFiles.open(
            SqlContainerRows(spool.tables), MemoryContents(), options.container, options.clock
        ),
        ledger=ledger,
        registry=registry,
        registry_problem="",
        secret=secret,
        incarnation=secrets.token_hex(8),
        close=spool.close,
    )


ENGINE = Engine(open=open_storage, is_new=lambda directory: True, version=lambda: "memory")
