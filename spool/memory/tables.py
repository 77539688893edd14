"""Tables in the memory of the process: those of SQLite, in a database without a file."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import TypeVar

from spool.sql.connection import SqlConnection
from spool.sqlite.database import add_functions
from spool.sqlite.directory import SPOOL
from spool.sqlite.migrations import migrate, statements
from spool.sqlite.transactions import SqliteConnection

T = TypeVar("T")


class MemoryTables:
    """
    See `spool.sql.connection.SqlTransactions`. What `prepare` makes goes with this object.

    Each `prepare` runs once in a process: it makes the same tables for all.
    """

    def __init__(self, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self.connection = _connected()
        weakref.finalize(self, self.connection.close)
        self.connection.deserialize(_prepared(prepare))

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return work(SqliteConnection(self.connection))

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        return work(SqliteConnection(self.connection))

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        return self.change(work)

    def change(self, work: Callable[[SqlConnection], T]) -> T:
        """Run `work` in a transaction without waiting."""
        self.connection.execute("BEGIN")
        try:
            result = work(SqliteConnection(self.connection))
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")
        return result


def _connected() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    add_functions(connection)
    return connection


@cache
def _prepared(prepare: Callable[[sqlite3.Connection], None]) -> bytes:
    with closing(_connected()) as connection:
        prepare(connection)
        return connection.serialize()


def spool_tables() -> MemoryTables:
    """The small tables that stand beside the log."""
    return MemoryTables(_migrate_spool)


def _migrate_spool(connection: sqlite3.Connection) -> None:
    migrate(connection, statements(SPOOL))
