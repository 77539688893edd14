"""Waits until a standby has what was committed before, for all who ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Barrier:
    """
    One wait at a time: who asks while one is under way shares the next with all who ask meanwhile.

    `confirm` waits until a standby has everything that was committed before.
    """

    def __init__(self, confirm: Callable[[], Awaitable[None]]) -> None:
        self._confirm = confirm
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Wait until all commits before this call are confirmed; raise the error of the wait if they are not."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running), name="barrier")
            self._next.add_done_callback(_heard)
        await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        await self._confirm()


def _heard(done: asyncio.Task[None]) -> None:
    """Take the error of a barrier whose caller may have been cancelled: asyncio would log it as a defect."""
    if not done.cancelled():
        done.exception()
