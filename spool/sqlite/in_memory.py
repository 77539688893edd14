"""
SQLite without files: the same tables and rules in the memory of the process. All data are lost when
the process ends.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from spool.clock import Clock, SystemClock
from spool.ledger.ledger import Ledger
from spool.log.protocols import CommitObserver
from spool.packed.native import NativeModule
from spool.registry.registry import Registry
from spool.settings import ContainerSettings, SpoolSettings
from spool.sqlite import recovery
from spool.sqlite.database import visit_rows_in_memory
from spool.sqlite.directory import LEDGER, REGISTRY, SPOOL, DirectoryLock
from spool.sqlite.ledger import SqliteLedger
from spool.sqlite.memory_log import MemoryDatabase, new_in_memory_log
from spool.sqlite.registry import SqliteRegistry
from spool.sqlite.spool import NO_OTHER_LIMITS, SqliteSpool, load_sqlite_spool
from spool.storage import Storage, StorageEngine, StorageOptions


class MemoryContainerFileContents:
    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def begin_draft(self, id: str, header_line: bytes) -> MemoryContainerFileDraft:
        return MemoryContainerFileDraft(self, id, header_line)

    async def read(self, id: str) -> AsyncIterator[bytes]:
        if id not in self.kept:
            raise FileNotFoundError(id)
        _, _, data = self.kept[id].partition(b"\n")
        yield data

    async def remove(self, ids: Sequence[str]) -> None:
        for id in ids:
            self.kept.pop(id, None)

    async def header_lines_by_file_id(self) -> Mapping[str, bytes]:
        return {id: data.partition(b"\n")[0] + b"\n" for id, data in self.kept.items()}


class MemoryContainerFileDraft:
    def __init__(self, contents: MemoryContainerFileContents, id: str, head: bytes) -> None:
        self._contents = contents
        self._id = id
        self._data = bytearray(head)

    async def write(self, data: bytes) -> None:
        self._data += data

    async def flush(self) -> None:
        """Do nothing, because there is no disk."""

    async def store_draft(self) -> None:
        self._contents.kept[self._id] = bytes(self._data)

    async def delete_draft(self) -> None:
        self._data.clear()


async def open_spool(
    *,
    settings: SpoolSettings,
    clock: Clock,
    observer: CommitObserver | None = None,
    container: ContainerSettings = NO_OTHER_LIMITS,
    native: NativeModule | None = None,
) -> SqliteSpool:
    secret = secrets.token_bytes(32)
    database = MemoryDatabase(SPOOL)
    await database.run(recovery.migrate_spool)
    log = new_in_memory_log(
        database, settings=settings, clock=clock, secret=secret, observer=observer, native=native
    )
    return await load_sqlite_spool(
        database,
        log,
        MemoryContainerFileContents(),
        settings,
        container,
        clock,
        lock=DirectoryLock(None),
        secret=secret,
    )


def new_in_memory_ledger() -> SqliteLedger:
    return SqliteLedger(MemoryDatabase(LEDGER), SystemClock())


def new_in_memory_registry() -> SqliteRegistry:
    return SqliteRegistry(MemoryDatabase(REGISTRY))


async def open_storage(options: StorageOptions) -> Storage:
    """Open a storage in memory. The data directory is neither read nor written."""
    spool = await open_spool(
        settings=options.settings,
        clock=options.clock,
        observer=options.observer,
        container=options.container,
        native=options.native,
    )
    ledger = Ledger(
        new_in_memory_ledger(), clock=options.clock, tags=options.ledger_tags, chunk=options.ledger_chunk
    )
    spool.log.add_reader(ledger.lowest_needed_number)
    clock = options.registry_clock or options.clock
    registry = await Registry.open(
        new_in_memory_registry(), secret=spool.secret, clock=clock, declared=options.declared
    )
    return spool.as_storage(
        ledger=await ledger.load(),
        registry=registry,
        visit_rows=partial(visit_rows_in_memory, spool.database),
        close=spool.close,
    )


ENGINE = StorageEngine(open=open_storage, is_new=lambda directory: True, version=lambda: "memory")
