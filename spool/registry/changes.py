"""Changes of a registry one after the other, with what is kept in memory in step with every commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from spool.clock import Clock
from spool.installation import derived
from spool.registry.rows import RegistryRows, RegistryStore

T = TypeVar("T")


class Changes:
    """What the tables of one registry share: its store, its clock and the order of its changes."""

    def __init__(self, store: RegistryStore, *, clock: Clock, secret: bytes) -> None:
        self.clock = clock
        self.read = store.read
        self._store = store
        self._secret = secret
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Future[Any]] = set()
        self.version = 0  # grows with every change

    def secret(self, use: str) -> bytes:
        """The installation's secret for one use alone."""
        return derived(self._secret, f"registry: {use}")

    async def change(self, work: Callable[[RegistryRows], T], apply: Callable[[T], None] | None = None) -> T:
        """
        Run `work` in a transaction and then `apply` its result to what is kept in memory.

        Changes take turns, and a caller that is cancelled cannot separate the two: memory never lags behind a commit.
        """

        async def both() -> T:
            async with self._turn:
                result = await self._store.change(work)
                self.version += 1
                if apply is not None:
                    apply(result)
                return result

        task = asyncio.create_task(both())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """After the changes that are running."""
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._store.close()
