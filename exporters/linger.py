"""
How long the newest records of a route wait for others to leave with them: a request costs more than its records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from math import inf

from spool.clock import Clock, elapsed_s
from spool.log.protocols import Log

LOOK_S = 0.05  # whether there is a whole delivery by now
FOLLOW_S = 2.0  # for so long after a request to hurry, commits of other gateways may become known here
DAY_S = 86400.0
DAY_ENDS_S = 600.0  # after midnight, UTC: then the files of the day before are made


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
        """`below` whenever it has grown: when the oldest record waited long enough, or there is a whole delivery."""
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


class CommitLinger:
    """
    As `Linger`, but a record waits from its commit on, so that a restart makes no file early, and a stop makes none.

    `uncut` gives the lowest number that the route has not settled.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        clock: Clock,
        *,
        seconds: float,
        max_records: int,
        uncut: Callable[[], Awaitable[int]],
    ) -> None:
        self._log = log
        self._topic = topic
        self._clock = clock
        self._seconds = seconds
        self._max_records = max_records
        self._uncut = uncut
        self._hurried_below = 0
        self._hurried_at = -inf
        self.below = 0

    async def changes(self) -> AsyncIterator[int]:
        """Yield `below` whenever it has grown."""
        async for _ in self._log.changes(self._topic):
            self.below = max(self.below, await self._uncut())
            while self._waiting() > 0:
                await self._rest(await self._committed_at())
                waiting = self._waiting()
                self.below += waiting // self._max_records * self._max_records or waiting
                yield self.below

    def hurry(self) -> None:
        """Let what has been committed by now leave as soon as it is closed, whatever the times of its commits."""
        self._hurried_below = self._log.next_number(self._topic)
        self._hurried_at = self._clock.monotonic()

    async def _rest(self, committed_at: float) -> None:
        """Wait until a record is due, or for a whole delivery."""
        while self._waiting() < self._max_records and not await self._is_due(committed_at):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    def _waiting(self) -> int:
        return self._log.closed_below(self._topic) - self.below

    async def _committed_at(self) -> float:
        """The commit of the record at `below`; 0 if it is damaged."""
        entries = await self._log.read(self._topic, self.below, self.below)
        return entries[0].committed_at if entries else 0.0

    async def _is_due(self, committed_at: float) -> bool:
        """True if the record at `below` has waited long enough, and with it those behind it."""
        if self._clock.monotonic() - self._hurried_at < FOLLOW_S:
            self._hurried_below = await self._log.newest_number(self._topic)
        day_ends_at = committed_at // DAY_S * DAY_S + DAY_S
        waits_s = min(self._seconds, day_ends_at + DAY_ENDS_S - committed_at)
        return self.below < self._hurried_below or elapsed_s(committed_at, self._clock.now()) >= waits_s

    def end(self) -> bool:
        """Let nothing leave early: what waits is on disk."""
        return False
