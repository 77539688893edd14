"""
The order of changes to a registry, with its tables in memory. `spool.registry.following` describes other
processes' changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

from spool.clock import Clock
from spool.errors import SpoolUnavailable
from spool.installation import derive_secret
from spool.people import People
from spool.registry.following import ChangedRowId, RegistryNews
from spool.registry.registry_rows import RegistryRows, RegistryStore

T = TypeVar("T")
# age of the last check for other processes' changes, from its beginning; after this time, memory counts as
# stale
LOOKED_S = 1.0


class RegistryChangeWriter:
    """Store, clock and order of changes for all tables of a registry."""

    is_draft = False  # whether all changes belong to one uncommitted transaction

    def __init__(self, store: RegistryStore, *, clock: Clock, secret: bytes) -> None:
        self.clock = clock
        self.now = clock.now
        self.read = store.read
        self._store = store
        self.is_shared = store.is_shared
        self._secret = secret
        self.people = People.for_installation(secret)
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Future[Any]] = set()
        self._loaders: list[tuple[Collection[ChangedRowId], Callable[[], Awaitable[None]]]] = []
        self._seq: int | None = None  # number of the newest change of other processes that memory has
        self._looked_at = clock.monotonic()
        # number of checks that have begun, and number of the newest finished one
        self._looks_begun = self._newest_look = 0
        self._looked = asyncio.Condition()
        self.version = 0  # number that grows with every change
        self._changed = asyncio.Event()
        self._must_load = False  # True if memory lacks the newest commit of `change_any_table`
        # changes that the tables load now, or None while they load all rows
        self.news: RegistryNews | None = None

    def derive_secret(self, use: str) -> bytes:
        return derive_secret(self._secret, f"registry: {use}")

    async def change_rows(
        self, work: Callable[[RegistryRows], T], apply: Callable[[T], None] | None = None
    ) -> T:
        """
        Run `work` in a transaction, then `apply` with its result, which updates memory.

        Changes run one at a time, and to the end even if the caller is cancelled, so memory has every commit.
        A change that ends a key also waits for running commits that use the key.
        """

        async def apply_result_in_memory(result: T) -> None:
            if apply is not None:
                apply(result)

        return await self._run_shielded(self._change_in_turn(work, apply_result_in_memory))

    async def change_any_table(self, work: Callable[[RegistryRows], T]) -> T:
        """
        Run `work` on any table, then load every table again.

        If loading fails, raises SpoolUnavailable after the commit. The next change then loads first.
        """

        async def reload_all_tables(_: T) -> None:
            self._must_load = True
            await self._load_all_tables()

        return await self._run_shielded(self._change_in_turn(work, reload_all_tables, is_long=True))

    async def _change_in_turn(
        self,
        work: Callable[[RegistryRows], T],
        remember: Callable[[T], Awaitable[None]],
        *,
        is_long: bool = False,
    ) -> T:
        async with self._turn:
            if self._must_load:
                await self._load_all_tables()
            result = await self._store.change(work, is_long=is_long)
            ends_keys = self._store.ends_keys
            self.version += 1
            await remember(result)
            self._changed.set()
        if ends_keys:
            await self._store.wait_for_running_commits()
        return result

    async def _load_all_tables(self) -> None:
        for _, load in self._loaders:
            await load()
        self._must_load = False

    async def _run_shielded(self, change: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(change)
        self._running.add(task)
        task.add_done_callback(self._discard_task)
        return await asyncio.shield(task)

    def _discard_task(self, done: asyncio.Task[Any]) -> None:
        self._running.discard(done)
        if not done.cancelled():
            # asyncio logs an exception that nobody read as a defect, for example after a cancellation
            done.exception()

    async def overwrite_deleted_data(self) -> str:
        return await self._store.overwrite_deleted_data()

    async def wait_until_durable(self) -> None:
        await self._store.wait_until_durable()

    async def load_and_keep_fresh(self, load: Callable[[], Awaitable[None]], *about: ChangedRowId) -> None:
        """
        Call `load` now, and again whenever another process changes one of the rows `about` (kind and id).
        """
        self._loaders.append((about, load))
        await load()

    async def catch_up(self) -> RegistryNews:
        """
        Read and apply every change that was committed before this call. Return these changes.

        If they cannot be read, raises SpoolUnavailable and leaves memory unchanged.
        """
        async with self._turn:
            began = self.clock.monotonic()
            self._looks_begun += 1
            look = self._looks_begun
            changes = await self._store.changes_since(self._seq)
            if self._must_load:
                await self._load_all_tables()
            if changes.changed is None or changes.changed:
                self.version += 1
            self.news = changes
            try:
                for about, load in self._loaders:
                    if changes.has_changed(about):
                        await load()
            finally:
                self.news = None
            self._changed.set()
            self._seq = changes.seq
            self._looked_at = began
            self._newest_look = look
        async with self._looked:
            self._looked.notify_all()
        return changes

    async def wait_for_change(self) -> None:
        """Wait for the next change, or for the next periodic check."""
        self._changed.clear()
        await self._changed.wait()

    async def wait_until_caught_up(self) -> None:
        """
        Wait for the next periodic check, after which memory has every change before this call. Raises
        SpoolUnavailable after LOOKED_S seconds.
        """
        target_look = self._looks_begun + 1
        try:
            async with asyncio.timeout(LOOKED_S), self._looked:
                await self._looked.wait_for(lambda: self._newest_look >= target_look)
        except TimeoutError:
            raise SpoolUnavailable(
                "the changes of other gateways could not be read within a second"
            ) from None

    @property
    def is_memory_fresh(self) -> bool:
        """Return whether memory has every change that is older than LOOKED_S seconds."""
        return not self.is_shared or self.clock.monotonic() - self._looked_at <= LOOKED_S

    async def close(self) -> None:
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._store.close()


class DraftChanges(RegistryChangeWriter):
    """
    Changes within one running transaction, for tables that exist only in it.

    Nothing waits here, so `run_without_waiting` can run the tables' methods on the transaction's thread.
    """

    is_draft = True

    def __init__(self, change_writer: RegistryChangeWriter, registry_rows: RegistryRows) -> None:
        super().__init__(change_writer._store, clock=change_writer.clock, secret=change_writer._secret)
        self._rows = registry_rows
        self._newest = 0.0
        self.now = self._next_distinct_time
        self.read = self._read

    async def change_rows(
        self, work: Callable[[RegistryRows], T], apply: Callable[[T], None] | None = None
    ) -> T:
        result = work(self._rows)
        if apply is not None:
            apply(result)
        return result

    def _next_distinct_time(self) -> float:
        """
        Return a time later than every earlier one, so that rows of one transaction with many changes (a
        draft) have an order.
        """
        self._newest = max(self.clock.now(), self._newest + 1e-6)
        return self._newest

    async def _read(self, work: Callable[[RegistryRows], T]) -> T:
        return work(self._rows)


def run_without_waiting(running: Coroutine[Any, Any, T]) -> T:
    try:
        running.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    running.close()
    raise RuntimeError("the coroutine waits, which it must not do within a transaction")
