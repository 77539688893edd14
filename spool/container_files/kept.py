"""
The rows of container metrics with their bytes, inside the bounds: written together with the books, removed
when room is needed or their time is over.

Who changes a row holds `lock` from reading the row before to writing the one after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from spool.clock import Clock
from spool.container_files import books, container_rows
from spool.container_files.container_rows import ContainerContents, ContainerRows
from spool.container_files.sums import MAX_BYTES, MAX_CLUSTER_BYTES, ContainerSums, Place
from spool.container_files.values import (
    DELIVERED,
    EXPIRED,
    UNUSED,
    BookChange,
    ContainerFile,
)
from spool.errors import SpoolFull
from spool.log.partial_reports import Expectation
from spool.settings import ContainerSettings

RETRY_AFTER_S = 60
MANY = 500  # rows of one step


class KeptFiles:
    """Rows, bytes and the sums of both."""

    def __init__(
        self,
        rows: ContainerRows,
        contents: ContainerContents,
        settings: ContainerSettings,
        clock: Clock,
        sums: ContainerSums,
    ) -> None:
        self.rows = rows
        self.contents = contents
        self.settings = settings
        self.sums = sums
        self.lock = asyncio.Lock()
        self._clock = clock
        self._news = asyncio.Event()

    async def make_room(self, place: Place, n: int) -> None:
        """Hold `n` bytes more for what arrives. SpoolFull if there is no room and none can be made."""
        self.sums.arriving[place] += n
        try:
            if not self.sums.may_arrive(place[1], n):
                why = f"files of this key that wait for the upstream fill what it may have of {MAX_BYTES}"
                raise SpoolFull(f"{why}: no key gets more than it leaves free", retry_after_s=RETRY_AFTER_S)
            if self.sums.over(place):
                await self._remove_spent(place)
            over = self.sums.over(place)
            if over:
                raise SpoolFull(f"files that wait for the upstream fill {over}", retry_after_s=RETRY_AFTER_S)
        except BaseException:
            self.give_back(place, n)
            raise

    def give_back(self, place: Place, n: int) -> None:
        """Hold no longer what arrived."""
        self.sums.arriving[place] -= n
        if not self.sums.arriving[place]:
            del self.sums.arriving[place]

    async def make_room_for_rows(self, key: str, n: int) -> None:
        if not n:
            return
        most = self.settings.max_files
        if not self.sums.may_wait(key, n):
            raise SpoolFull(
                "the files that wait leave no room (container.max_files)", retry_after_s=RETRY_AFTER_S
            )
        while self.sums.known + n > most:
            done = await self.rows.select(container_rows.FORGETTABLE, limit=max(MANY, n))
            if not done:
                raise SpoolFull(
                    "all files that are known wait (container.max_files)", retry_after_s=RETRY_AFTER_S
                )
            await self.write([], gone=done)

    async def _remove_spent(self, place: Place) -> None:
        """Remove delivered files, the oldest of the key with the most first, until there is room again."""
        async with self.lock:
            while over := self.sums.over(place):
                identity, key = place if over == MAX_CLUSTER_BYTES else (None, self.sums.fullest_spent())
                spent = await self.rows.select(
                    container_rows.SPENT, now=inf, identity=identity, key=key, limit=1
                )
                if not spent and identity is None:  # another process removed what this one still sums up
                    spent = await self.rows.select(container_rows.SPENT, now=inf, limit=1)
                if not spent:
                    return
                await self._remove(spent, DELIVERED)

    async def _remove_all(self, which: str, before: float, state: str) -> None:
        while files := await self.rows.select(which, now=before, limit=MANY):
            async with self.lock:
                current = [await self.rows.find(file.id) for file in files]
                await self._remove([file for file in current if file is not None], state)

    async def _remove(self, files: Sequence[ContainerFile], state: str) -> None:
        """Rows first: what is then still on disk is removed at the next opening."""
        now = self._clock.now()
        facts: dict[str, Any] = {"state": state, "kept": False, "body": b""}
        await self.write([(file, replace(file, **facts, done_at=file.done_at or now)) for file in files])
        await self.contents.remove([file.id for file in files if file.kept])

    async def change(
        self, files: Sequence[ContainerFile], change: Callable[[ContainerFile], ContainerFile]
    ) -> None:
        async with self.lock:
            current = [await self.rows.find(file.id) for file in files]
            await self.write([(file, change(file)) for file in current if file is not None])

    async def write(
        self,
        files: Sequence[tuple[ContainerFile | None, ContainerFile]],
        *,
        gone: Sequence[ContainerFile] = (),
        changes: Sequence[BookChange] = (),
        expects: Collection[Expectation] = (),
        is_bounded: bool = False,
    ) -> None:
        """
        Write rows with what they change in the books; each with the row before it, None for a new one.

        KeyEnded if the key of whoever caused it has ended, TooManyFiles for new rows that are over the limit.
        """
        pairs = [(before, after) for before, after in files if before != after]
        all_changes = [*changes, *books.changes_of(pairs, gone)]
        if not (pairs or gone or all_changes):
            return
        most = self.settings.max_files if is_bounded else None
        await self.rows.write(pairs, gone, all_changes, expects=expects, most=most)
        self.sums.follow(pairs, gone, all_changes)
        self._news.set()

    async def follow(self) -> None:
        """Sum up anew if other processes wrote rows."""
        async with self.lock:
            if await self.sums.read_again(self.rows):
                self._news.set()

    async def retain(self, *, has_upstream: bool) -> None:
        """Take away what has had its time."""
        now = self._clock.now()
        before = now - self.settings.retention
        while files := await self.rows.select(container_rows.OVERDUE, now=now, limit=MANY):
            await self.change(files, lambda file: replace(file, state=UNUSED, done_at=now))
        await self._remove_all(container_rows.SPENT, before, DELIVERED)
        if not has_upstream:
            await self._remove_all(container_rows.UNSENT, before, EXPIRED)

    async def changes(self) -> None:
        """Wait until something is written since the last call; for one reader."""
        await self._news.wait()
        self._news.clear()
