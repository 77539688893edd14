"""The registry without a disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spool.memory.tables import MemoryTables
from spool.registry.registry_rows import RegistryRows
from spool.registry.shared.following import NO_NEWS, RegistryNews
from spool.sql.registry import SqlRegistryRows
from spool.sqlite.registry.store import prepare

T = TypeVar("T")


class MemoryRegistry:
    """See `spool.registry.registry_rows.RegistryStore`."""

    is_shared = ends_keys = False

    def __init__(self) -> None:
        self._tables = MemoryTables(prepare)

    async def change(self, work: Callable[[RegistryRows], T]) -> T:
        return self._tables.change(lambda connection: work(SqlRegistryRows(connection)))

    async def read(self, work: Callable[[RegistryRows], T]) -> T:
        return await self._tables.read(lambda connection: work(SqlRegistryRows(connection)))

    async def outlast_commits(self) -> None:
        """Do nothing: no other process writes."""

    async def confirm(self) -> None:
        """Do nothing: memory has no standby to wait for."""

    async def news(self, since: int | None) -> RegistryNews:
        return NO_NEWS

    async def close(self) -> None:
        """Do nothing: the rows stay for the next opening."""
