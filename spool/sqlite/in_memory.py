"""
SQLite without files: the same tables and rules in the memory of the process. All data are lost when
the process ends.
"""

from __future__ import annotations

import secrets
import sqlite3
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TypeVar

from spool.clock import Clock, SystemClock
from spool.ledger.ledger import Ledger
from spool.log.protocols import Observer
from spool.packed.native import Native
from spool.registry.registry import Registry
from spool.settings import ContainerSettings, SpoolSettings
from spool.sqlite import NO_OTHER_LIMITS, SqliteSpool, read_spool, recovery
from spool.sqlite.database import Database, add_functions
from spool.sqlite.deliveries import delivery_rows
from spool.sqlite.directory import LEDGER, REGISTRY, SPOOL, DirectoryLock
from spool.sqlite.ledger import SqliteLedger
from spool.sqlite.log.log import CACHE_BYTES, SqliteLog
from spool.sqlite.log.rest import Rest
from spool.sqlite.migrations import migrate, read_statements
from spool.sqlite.registry import SqliteRegistry
from spool.sqlite.reserve import Reserve
from spool.storage import Engine, Storage, StorageOptions

T = TypeVar("T")
NOWHERE = Path("/dev/null")  # no file can be created in a directory with this name


class MemoryDatabase(Database):
    """A database in memory. Each function runs at once, on the caller's thread."""

    flush_seconds = busy_s = 0.0
    checkpoint_problem = ""

    def __init__(self, file: str) -> None:
        self.path = NOWHERE / file
        self._connection = _open_connection()
        weakref.finalize(self, self._connection.close)
        self._connection.deserialize(_empty_tables(file))

    async def transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        connection.execute("BEGIN")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self._connection)

    snapshot = run = read

    def is_in_place(self) -> bool:
        return True

    def wal_bytes(self) -> int:
        return 0

    async def close(self) -> None:
        """Do nothing. The rows stay for the next opening, and are freed with this object."""


def _open_connection() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    add_functions(connection)
    return connection


@cache
def _empty_tables(file: str) -> bytes:
    """Return the content of a new file. Its tables are created once per process."""
    with closing(_open_connection()) as connection:
        migrate(connection, read_statements(file))
        return connection.serialize()


class _NoReserve(Reserve):
    def restore(self) -> bool:
        return True

    def give_up(self) -> None:
        return

    def disk_is_full(self) -> bool:
        return False


class _NoRest(Rest):
    def start_writing(self) -> None:
        return

    async def write_note(self) -> None:
        return


class MemoryContents:
    """Implements `spool.container_files.container_rows.ContainerContents`."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def begin(self, id: str, head: bytes) -> MemoryDraft:
        return MemoryDraft(self, id, head)

    async def read(self, id: str) -> AsyncIterator[bytes]:
        if id not in self.kept:
            raise FileNotFoundError(id)
        _, _, data = self.kept[id].partition(b"\n")
        yield data

    async def remove(self, ids: Sequence[str]) -> None:
        for id in ids:
            self.kept.pop(id, None)

    async def stored_heads(self) -> Mapping[str, bytes]:
        return {id: data.partition(b"\n")[0] + b"\n" for id, data in self.kept.items()}


class MemoryDraft:
    def __init__(self, contents: MemoryContents, id: str, head: bytes) -> None:
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
    observer: Observer | None = None,
    container: ContainerSettings = NO_OTHER_LIMITS,
    native: Native | None = None,
) -> SqliteSpool:
    secret = secrets.token_bytes(32)
    database = MemoryDatabase(SPOOL)
    await database.run(recovery.migrate_spool)
    log = SqliteLog(
        database,
        settings=settings,
        clock=clock,
        secret=secret,
        reserve=_NoReserve(NOWHERE, clock),
        rest=_NoRest(database),
        mount=None,
        routes=delivery_rows,
        observer=observer,
        cache_bytes=CACHE_BYTES,
        native=native,
    )
    return await read_spool(
        database, log, MemoryContents(), settings, container, clock, lock=DirectoryLock(None), secret=secret
    )


def new_ledger() -> SqliteLedger:
    return SqliteLedger(MemoryDatabase(LEDGER), SystemClock())


def new_registry() -> SqliteRegistry:
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
    ledger = Ledger(new_ledger(), clock=options.clock, tags=options.ledger_tags, chunk=options.ledger_chunk)
    spool.log.add_reader(ledger.needs)
    clock = options.registry_clock or options.clock
    registry = await Registry.open(
        new_registry(), secret=spool.secret, clock=clock, declared=options.declared
    )
    return spool.as_storage(ledger=await ledger.load(), registry=registry, close=spool.close)


ENGINE = Engine(open=open_storage, is_new=lambda directory: True, version=lambda: "memory")
