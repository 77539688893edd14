"""
How long the newest records of a route wait for others to leave with them: a request costs more than its
records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from spool.log.protocols import Log

LOOK_S = 0.05  # whether there is a whole delivery by now


class Linger:
    """
    Says below which number deliveries may be cut; what is closed when it is made may leave at once.

    Timers are those of the event loop: no step of a clock changes a wait.
    """

    def __init__(self, log: Log, topic: str, *, seconds: float, max_records: int) -> None:
        self._log = log
        self._topic = topic
        self._seconds = seconds
        self._max_records = max_records
        self._below = log.closed_below(topic)

    @property
    def below(self) -> int:
        return self._below if self._seconds else self._log.closed_below(self._topic)

    async def changes(self) -> AsyncIterator[int]:
        """
        `below` whenever it has grown: when the oldest record waited long enough, or there is a whole
        delivery.
        """
        async for closed in self._log.changes(self._topic):
            if not self._seconds or closed <= self._below:
                self._below = max(closed, self._below)
                yield self._below
            # a whole delivery leaves at once; what is left over is no news of the log
            while closed > self._below:
                self._below = max(await self._wait(), self._below)
                yield self._below

    def end(self) -> bool:
        """Let everything that is closed leave; False if nothing waited."""
        waited_from, self._below = self.below, self._log.closed_below(self._topic)
        return self._below > waited_from

    async def _wait(self) -> int:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        while (left_s := until - loop.time()) > 0:
            waiting = self._log.closed_below(self._topic) - self._below
            if waiting >= self._max_records:
                return self._below + waiting // self._max_records * self._max_records
            await asyncio.sleep(min(left_s, LOOK_S))
        return self._log.closed_below(self._topic)
