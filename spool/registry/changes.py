"""
Changes of a registry one after the other, with what is kept in memory in step with every commit.

Where other processes change the same registry, `follow` brings memory up to what they committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from spool.clock import Clock
from spool.errors import SpoolUnavailable
from spool.installation import derived
from spool.people import People
from spool.registry.following import RegistryNews, Subject
from spool.registry.registry_rows import RegistryRows, RegistryStore

T = TypeVar("T")
LOOKED_S = 1.0  # what was read longer ago than this may have been changed by another process


class Changes:
    """What the tables of one registry share: its store, its clock and the order of its changes."""

    def __init__(self, store: RegistryStore, *, clock: Clock, secret: bytes) -> None:
        self.clock = clock
        self.now = clock.now
        self.read = store.read
        self._store = store
        self.is_shared = store.is_shared  # other processes change the same rows
        self._secret = secret
        self.people = People.of_installation(secret)  # who is named by filters, seats and roles
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Future[Any]] = set()
        self._loaders: list[tuple[Collection[Subject], Callable[[], Awaitable[None]]]] = []
        self._seq: int | None = None  # the changes of others that memory has followed
        self._looked_at = clock.monotonic()
        self._looks_begun = self._newest_look = 0  # how many looks began, and the newest that came to its end
        self._looked = asyncio.Condition()
        self.version = 0  # grows with every change

    def secret(self, use: str) -> bytes:
        """The installation's secret for one use alone."""
        return derived(self._secret, f"registry: {use}")

    async def change(self, work: Callable[[RegistryRows], T], apply: Callable[[T], None] | None = None) -> T:
        """
        Run `work` in a transaction and then `apply` its result to what is kept in memory.

        Changes take turns, and a caller that is cancelled cannot separate the two: memory never lags
        behind a commit. Who ends a key waits for what others keep under it at this moment, and holds up
        nobody else meanwhile.
        """

        async def both() -> T:
            async with self._turn:
                result = await self._store.change(work)
                ends_keys = self._store.ends_keys
                self.version += 1
                if apply is not None:
                    apply(result)
            if ends_keys:
                await self._store.outlast_commits()
            return result

        task = asyncio.create_task(both())
        self._running.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    def _over(self, done: asyncio.Task[Any]) -> None:
        self._running.discard(done)
        if not done.cancelled():
            # heard: who waited may have been cancelled, and then it would be logged as a defect
            done.exception()

    async def confirm(self) -> None:
        """Wait until committed changes are durable, as `RegistryStore.confirm` describes."""
        await self._store.confirm()

    async def keep_fresh(self, load: Callable[[], Awaitable[None]], *about: Subject) -> None:
        """`load` reads what a table keeps in memory about these: now, and whenever others changed one of them."""
        self._loaders.append((about, load))
        await load()

    async def follow(self) -> RegistryNews:
        """
        Bring what is kept in memory up to what every process had committed before this call; returns what that was.

        SpoolUnavailable when it cannot be read: memory is as it was.
        """
        async with self._turn:
            began = self.clock.monotonic()
            self._looks_begun += 1
            look = self._looks_begun
            news = await self._store.news(self._seq)
            if news.changed is None or news.changed:
                self.version += 1
            for about, load in self._loaders:
                if news.concerns(about):
                    await load()
            self._seq = news.seq
            self._looked_at = began
            self._newest_look = look
        async with self._looked:
            self._looked.notify_all()
        return news

    async def followed(self) -> None:
        """
        Wait for the next look, whoever makes it: memory then holds what every process had committed
        before this call.

        However many wait, no look is made for them. SpoolUnavailable if none comes to its end within LOOKED_S.
        """
        wanted = self._looks_begun + 1
        try:
            async with asyncio.timeout(LOOKED_S), self._looked:
                await self._looked.wait_for(lambda: self._newest_look >= wanted)
        except TimeoutError:
            raise SpoolUnavailable("what other gateways changed was not read for a second") from None

    @property
    def is_fresh(self) -> bool:
        """True if memory holds what every process had committed LOOKED_S ago."""
        return not self.is_shared or self.clock.monotonic() - self._looked_at <= LOOKED_S

    async def close(self) -> None:
        """Close the store after the running changes."""
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._store.close()
