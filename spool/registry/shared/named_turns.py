"""Work of which a few run at once: of those who wait, each name in its turn, however often one of them asks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NamedTurns:
    """At most `limit` run at once. Who waits longest goes first within a name; names take turns."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(name)
        try:
            yield
        finally:
            self._free += 1
            self._wake()

    async def _wait(self, name: str) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # the turn was given, and is not taken
                self._free += 1
                self._wake()
            raise

    def _wake(self) -> None:
        """Give a free turn to the next that still waits."""
        while self._free and self._waiting:
            name, waiters = self._waiting.popitem(last=False)
            while waiters and waiters[0].done():  # it gave up
                waiters.popleft()
            if waiters:
                self._free -= 1
                waiters.popleft().set_result(None)
            if waiters:
                self._waiting[name] = waiters
