"""
Which records are closed: a number is open for `hold_s` after its commit, and readers see what lies below.

Timers follow the monotonic clock. While a commit is being made the horizon stands still, so that a record
which that commit amends is never shown without the amendment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import NamedTuple

from spool.clock import Clock
from spool.errors import NotClosed

# The clock is a parameter and may jump, so a reader looks again this often while it waits.
LOOK_AGAIN_S = 0.1
# Where commits follow each other, a reader is not woken for each: what closes within this time is one change.
STEP_S = 0.02


class Committed(NamedTuple):
    """The records of one topic and commit, as a start finds them."""

    at: float  # epoch seconds
    topic: str
    first: int
    next: int  # the number after the last


def check_closed(last: int, closed_below: int) -> None:
    """NotClosed unless a number is closed."""
    if last >= closed_below:
        raise NotClosed(f"records are closed up to {closed_below - 1} only, not up to {last}: repeat it")


class WaitingReaders:
    """
    Those who wait until more is closed. Belongs to the event loop.

    `closes_in_s` says in how many seconds the oldest open record closes; None when nothing is open.
    """

    def __init__(self, closed_below: Callable[[str], int], closes_in_s: Callable[[], float | None]) -> None:
        self._closed_below = closed_below
        self._closes_in_s = closes_in_s
        self._has_resting = False  # readers that wait until they are told
        self._moved = asyncio.Event()

    async def changes(self, topic: str) -> AsyncIterator[int]:
        """
        Yield the closed horizon now, and each time it moves. After memory was read again it may be
        lower, then higher.
        """
        seen = 0
        while True:
            closed = self._closed_below(topic)
            if closed != seen:
                seen = closed
                yield closed
            else:
                await self._wait()

    async def _wait(self) -> None:
        closes_in_s = self._closes_in_s()
        timeout = None if closes_in_s is None else min(LOOK_AGAIN_S, max(STEP_S, closes_in_s))
        self._has_resting |= timeout is None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._moved.wait()

    def wake_resting(self) -> None:
        """
        Wake readers after new commits. Readers with a time to look again need not be woken.

        What is open may move on another thread: whether all was closed before says nothing of who waits.
        """
        if self._has_resting:
            self.wake()

    def wake(self) -> None:
        """Readers that wait look again; later ones wait for the next move."""
        self._has_resting = False
        self._moved.set()
        self._moved = asyncio.Event()


class Horizon:
    """Belongs to the event loop."""

    def __init__(self, *, hold_s: float, clock: Clock) -> None:
        self._hold_s = hold_s
        self._clock = clock
        self._closed_below: dict[str, int] = {}
        self._open: deque[tuple[float, Mapping[str, int]]] = deque()
        self._frozen = False
        self._readers = WaitingReaders(self.closed_below, self._closes_in_s)

    def begin(self, next_numbers: Mapping[str, int], newest: Iterable[Committed] = ()) -> None:
        """
        Begin after a start: records that were committed less than `hold_s` ago stay open for the rest
        of their time.
        """
        self._closed_below = dict(next_numbers)
        now = self._clock.now()
        timer = self._clock.monotonic()
        young = sorted(one for one in newest if one.at > now - self._hold_s)
        for one in young:
            self._closed_below[one.topic] = min(one.first, self._closed_below.get(one.topic, 1))
            left_s = min(self._hold_s, one.at + self._hold_s - now)  # the wall clock may have been moved back
            self._open.append((timer + left_s, {one.topic: one.next}))

    def close(self, topic: str, below: int) -> None:
        """A reader has read these before a start: they stay as they are, whatever their times say."""
        if self._open:
            highest = max(numbers.get(topic, 1) for _, numbers in self._open)
            self._move({topic: min(below, highest)})

    def freeze(self) -> dict[str, int]:
        """Return the horizon of each topic and keep this answer until `thaw`."""
        closed = self.closed()
        self._frozen = True
        return closed

    def thaw(self, next_numbers: Mapping[str, int] | None = None) -> None:
        """A commit ended; with `next_numbers` it succeeded and opened records below them."""
        self._frozen = False
        if next_numbers:
            self._open.append((self._clock.monotonic() + self._hold_s, next_numbers))
        self._advance()
        self._readers.wake_resting()

    def closed(self) -> dict[str, int]:
        """All topics at one instant: looked at one by one, a commit could be open in one and closed in the next."""
        if self._open:
            self._advance()
        return dict(self._closed_below)

    def closed_below(self, topic: str) -> int:
        if self._open:
            self._advance()
        return self._closed_below.get(topic, 1)

    def changes(self, topic: str) -> AsyncIterator[int]:
        return self._readers.changes(topic)

    def _closes_in_s(self) -> float | None:
        return self._open[0][0] - self._clock.monotonic() if self._open else None

    def _advance(self) -> None:
        if self._frozen:
            return
        now = self._clock.monotonic()
        while self._open and self._open[0][0] <= now:
            self._move(self._open.popleft()[1])

    def _move(self, next_numbers: Mapping[str, int]) -> None:
        for topic, number in next_numbers.items():
            self._closed_below[topic] = max(number, self._closed_below.get(topic, 1))
