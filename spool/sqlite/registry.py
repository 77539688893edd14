"""registry.sqlite: opening, damage checks and transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from spool.clock import Clock
from spool.errors import RegistryDamaged, RowDamaged, SpoolUnavailable
from spool.registry.following import NO_NEWS, RegistryNews
from spool.registry.registry import DeclaredTable, Registry
from spool.registry.registry_rows import RegistryRows
from spool.sql import facts
from spool.sql.registry import SqlRegistryRows
from spool.sqlite.database import Database, SqliteConnection, Watch, is_corrupt, overwrite_deleted_rows
from spool.sqlite.directory import REGISTRY
from spool.sqlite.migrations import migrate, read_migration_statements

T = TypeVar("T")
# Errors that a damaged row raises when it is read. A change also runs rules, whose errors are not damage.
ROW_ERRORS = (RowDamaged, TypeError, KeyError, AttributeError)
BEGIN_ANEW = (
    "The spool is not affected. Restore this file from a backup, or start a new one with `tollhouse "
    "spool recover --new-registry`; then create all keys and operators again"
)


class SqliteRegistry:
    is_shared = ends_keys = False

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_in_place = database.are_files_in_place

    @classmethod
    async def open(cls, directory: Path) -> SqliteRegistry:
        """Open or create the file. Raises RegistryDamaged if an existing file cannot be read."""
        path = directory / REGISTRY
        try:
            return cls(await Database.open(path, migrate_and_check))
        except sqlite3.DatabaseError as error:
            raise _translate_error(error, path) from error

    async def change(self, work: Callable[[RegistryRows], T], *, is_long: bool = False) -> T:
        return await self._translate_errors(
            self._database.transaction(lambda connection: work(_registry_rows(connection))), RowDamaged
        )

    async def read(self, work: Callable[[RegistryRows], T]) -> T:
        return await self._translate_errors(
            self._database.snapshot(lambda connection: work(_registry_rows(connection))), *ROW_ERRORS
        )

    async def wait_for_running_commits(self) -> None: ...

    async def overwrite_deleted_data(self) -> str:
        return await self._translate_errors(overwrite_deleted_rows(self._database))

    async def wait_until_durable(self) -> None: ...

    async def changes_since(self, since_sequence_number: int | None) -> RegistryNews:
        return NO_NEWS

    async def close(self) -> None:
        await self._database.close()

    async def _translate_errors(self, running: Awaitable[T], *damage: type[Exception]) -> T:
        try:
            return await running
        except sqlite3.DatabaseError as error:
            raise _translate_error(error, self._database.path) from error
        except damage as error:
            raise RegistryDamaged(
                f"{self._database.path} is damaged ({type(error).__name__}). {BEGIN_ANEW}"
            ) from error


async def open_registry(
    directory: Path,
    *,
    secret: bytes,
    clock: Clock,
    declared: Iterable[type[DeclaredTable]] = (),
    watch: Watch | None = None,
) -> Registry:
    """
    Open the registry of a data directory. The caller must hold the directory's lock. Raises RegistryDamaged
    if it cannot be read.
    """
    store = await SqliteRegistry.open(directory)
    if watch is not None:
        watch(REGISTRY, store.is_in_place)
    return await Registry.open(store, secret=secret, clock=clock, declared=declared)


def migrate_and_check(connection: sqlite3.Connection) -> None:
    migrate(connection, read_migration_statements(REGISTRY))
    # The file is small, so the start checks all of it. Otherwise a later change might run into the damage.
    [verdict] = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(" ".join(verdict.split()))


def _registry_rows(connection: sqlite3.Connection) -> RegistryRows:
    return SqlRegistryRows(SqliteConnection(connection))


def _translate_error(error: sqlite3.DatabaseError, path: Path) -> RegistryDamaged | SpoolUnavailable:
    # the error is a full disk or a denied access, so the file itself is not damaged
    if isinstance(error, sqlite3.OperationalError) and not is_corrupt(error):
        return SpoolUnavailable(f"{path.name} cannot be used: {error}")
    return RegistryDamaged(f"{path} is damaged ({error}). {BEGIN_ANEW}")


# -- a note that a registry exists: if its file is missing later, that is damage and not a first start ----------


FACT = "registry"


async def require_expected_registry(spool: Database, directory: Path) -> None:
    """Raise RegistryDamaged if a registry existed and its file is now missing or empty."""
    path = directory / REGISTRY
    if path.exists() and path.stat().st_size:
        return
    if await spool.read(_is_registry_known_to_exist):
        raise RegistryDamaged(f"{path} is missing. {BEGIN_ANEW}")


async def store_that_registry_exists(spool: Database) -> None:
    """Store that a registry exists. If the disk is full, a later start stores it."""
    if await spool.read(_is_registry_known_to_exist):
        return
    try:
        await spool.transaction(lambda connection: facts.store_fact(SqliteConnection(connection), FACT, b"1"))
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_FULL:
            raise


def move_registry_aside(directory: Path, clock: Clock) -> None:
    """Rename a damaged registry, so that a new one does not overwrite it."""
    path = directory / REGISTRY
    new_path = path.with_name(f"{REGISTRY}.damaged-{int(clock.now())}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(new_path.with_name(new_path.name + suffix))


def _is_registry_known_to_exist(connection: sqlite3.Connection) -> bool:
    return facts.read_fact(SqliteConnection(connection), FACT) is not None
