"""A database in the memory of the process, and the log in it."""

from __future__ import annotations

import secrets
import sqlite3
import weakref
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TypeVar

from spool.clock import Clock
from spool.log.protocols import CommitObserver
from spool.packed.native import NativeModule
from spool.settings import SpoolSettings
from spool.sqlite.database import Database, add_functions
from spool.sqlite.deliveries import delivery_rows
from spool.sqlite.directory import SPOOL
from spool.sqlite.log.log import CACHE_BYTES, SqliteLog
from spool.sqlite.log.recovery_notes import RecoveryNoteWriter
from spool.sqlite.migrations import migrate, read_migration_statements
from spool.sqlite.reserve import DiskReserve

T = TypeVar("T")
NOWHERE = Path("/dev/null")  # no file can be created in a directory with this name


class MemoryDatabase(Database):
    """A database in memory. Each function runs at once, on the caller's thread."""

    last_commit_seconds = busy_s = 0.0
    checkpoint_problem = ""

    def __init__(self, file: str) -> None:
        self.path = NOWHERE / file
        self._connection = _open_connection()
        weakref.finalize(self, self._connection.close)
        self._connection.deserialize(_serialized_empty_tables(file))

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

    def are_files_in_place(self) -> bool:
        return True

    def wal_bytes(self) -> int:
        return 0

    async def close(self) -> None:
        """Do nothing: the rows stay for the next opening, and are freed with this object."""


def _open_connection() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    add_functions(connection)
    return connection


@cache
def _serialized_empty_tables(file: str) -> bytes:
    with closing(_open_connection()) as connection:
        migrate(connection, read_migration_statements(file))
        return connection.serialize()


class _NoReserve(DiskReserve):
    def reallocate_if_possible(self) -> bool:
        return True

    def release(self) -> None:
        return

    def is_disk_full(self) -> bool:
        return False


class _NoRecoveryNotes(RecoveryNoteWriter):
    def start_writing(self) -> None:
        return

    async def write_note(self) -> None:
        return


def new_in_memory_log(
    database: Database,
    *,
    settings: SpoolSettings,
    clock: Clock,
    secret: bytes,
    observer: CommitObserver | None = None,
    native: NativeModule | None = None,
) -> SqliteLog:
    return SqliteLog(
        database,
        settings=settings,
        clock=clock,
        secret=secret,
        reserve=_NoReserve(NOWHERE, clock),
        rest=_NoRecoveryNotes(database),
        mount=None,
        routes=delivery_rows,
        observer=observer,
        cache_bytes=CACHE_BYTES,
        native=native,
    )


async def open_log(settings: SpoolSettings, clock: Clock) -> SqliteLog:
    """Open a log in memory without the other parts of a storage, which take long to import."""
    log = new_in_memory_log(
        MemoryDatabase(SPOOL), settings=settings, clock=clock, secret=secrets.token_bytes(32)
    )
    await log.open()
    return log
