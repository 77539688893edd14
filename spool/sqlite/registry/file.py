"""
registry.sqlite itself: opening it, saying clearly that it is damaged, and changing it one whole change at a time.

The tables above it (spool.key_table, spool.operator_table) give the statements; nobody else writes to this file.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from spool.clock import Clock
from spool.errors import RegistryDamaged, SpoolUnavailable
from spool.installation import derived
from spool.registry.operators import Actor
from spool.sqlite.database import Database
from spool.sqlite.migrations import migrate, script

T = TypeVar("T")
FILE = "registry.sqlite"

_AUDIT = """
    INSERT INTO audit (at, actor, address, action, target, before, after)
    VALUES (:at, :actor, :address, :action, :target, :before, :after)"""


class RegistryFile:
    """The one writing connection of the registry, and the order of its changes."""

    def __init__(self, database: Database, *, clock: Clock, secret: bytes) -> None:
        self.clock = clock
        self._database = database
        self._secret = secret
        self._turn = asyncio.Lock()
        self._changes: set[asyncio.Future[Any]] = set()

    @classmethod
    async def open(cls, directory: Path, *, clock: Clock, secret: bytes) -> RegistryFile:
        """Open or create the file; RegistryDamaged when it is there and cannot be read."""
        path = directory / FILE
        try:
            database = await Database.open(path, _prepare)
        except sqlite3.DatabaseError as error:
            raise _translated(error, path) from error
        return cls(database, clock=clock, secret=secret)

    def secret(self, use: str) -> bytes:
        """The installation's secret for one use alone."""
        return derived(self._secret, f"registry: {use}")

    async def change(self, work: Callable[[sqlite3.Connection], T], apply: Callable[[T], object]) -> T:
        """
        Run `work` in a transaction and then `apply` its result to what is kept in memory.

        Changes take turns, and a caller that is cancelled cannot part the two: memory never lags behind a commit.
        """

        async def both() -> T:
            async with self._turn:
                result = await self._guarded(self._database.transaction(work))
                apply(result)
                return result

        task = asyncio.create_task(both())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._guarded(self._database.read(work))

    async def select(
        self, statements: Sequence[tuple[str, Sequence[object] | Mapping[str, object]]]
    ) -> list[list[sqlite3.Row]]:
        """The rows of each statement, all of one moment."""

        def work(connection: sqlite3.Connection) -> list[list[sqlite3.Row]]:
            connection.row_factory = sqlite3.Row
            connection.execute("BEGIN")
            try:
                return [connection.execute(statement, values).fetchall() for statement, values in statements]
            finally:
                connection.execute("ROLLBACK")

        return await self._guarded(self._database.read(work))

    async def close(self) -> None:
        await asyncio.gather(*self._changes, return_exceptions=True)
        await self._database.close()

    async def _guarded(self, running: Awaitable[T]) -> T:
        try:
            return await running
        except sqlite3.DatabaseError as error:
            raise _translated(error, self._database.path) from error


def audit(
    connection: sqlite3.Connection,
    actor: Actor,
    at: float,
    action: str,
    target: str,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> None:
    """The audit row of a change, in the change's own transaction; what it says holds no secret."""
    row = {"at": at, "actor": actor.name, "address": actor.address, "action": action, "target": target}
    told = {name: None if told is None else json.dumps(told) for name, told in (("before", before), ("after", after))}
    connection.execute(_AUDIT, {**row, **told})


def _prepare(connection: sqlite3.Connection) -> None:
    connection.row_factory = sqlite3.Row
    migrate(connection, (script("registry.sql"), script("insights.sql")))
    # The file is small: reading all of it at start costs less than finding damage in the middle of a change.
    [verdict, *_] = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(" ".join(verdict.split()))


def _translated(error: sqlite3.DatabaseError, path: Path) -> RegistryDamaged | SpoolUnavailable:
    if isinstance(error, sqlite3.OperationalError):  # disk full, no permission: the file itself is whole
        return SpoolUnavailable(f"{path.name} cannot be used: {error}")
    return RegistryDamaged(
        f"{path} is damaged ({error}). The spool is untouched. Restore this file from a backup, or move it away and "
        "start again: keys and operators must then be created anew"
    )
