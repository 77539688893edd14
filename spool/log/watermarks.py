"""
The watermark of each topic. Records below it are closed (final), so readers may see them. A record stays open
for `hold_s` seconds after its commit, so that later reports can still be added.

Timers use the monotonic clock. The watermark does not move while a commit runs, so no reader sees a record
without a report that this commit adds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import NamedTuple

from spool.clock import Clock
from spool.errors import NotClosed

# a waiting reader checks again after this time, because a test's clock may jump
LOOK_AGAIN_S = 0.1
# a reader wakes at most once in this time, not once per commit
STEP_S = 0.02


class OpenRecords(NamedTuple):
    """The records of one topic and commit that are open at a start."""

    at: float  # epoch seconds
    topic: str
    first: int
    next: int  # number of the next record


def require_closed(last_number: int, lowest_open_number: int) -> None:
    if last_number >= lowest_open_number:
        raise NotClosed(
            f"records are closed up to {lowest_open_number - 1} only, not up to {last_number}. Retry later"
        )


class WaitingReaders:
    """
    Readers that wait, on the event loop, until more records are closed.

    `closes_in_s`: returns the seconds until the oldest open record closes, None if no record is open.
    """

    def __init__(
        self, lowest_open_number: Callable[[str], int], closes_in_s: Callable[[], float | None]
    ) -> None:
        self._closed_below = lowest_open_number
        self._closes_in_s = closes_in_s
        self._has_resting = False  # a reader waits without a timeout
        self._moved = asyncio.Event()

    async def watermark_changes(self, topic: str) -> AsyncIterator[int]:
        """
        Yield the watermark now and at each change. It may briefly fall after the state was loaded again.
        """
        seen = 0
        while True:
            closed = self._closed_below(topic)
            if closed != seen:
                seen = closed
                yield closed
            else:
                await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        closes_in_s = self._closes_in_s()
        timeout = None if closes_in_s is None else min(LOOK_AGAIN_S, max(STEP_S, closes_in_s))
        self._has_resting |= timeout is None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._moved.wait()

    def wake_readers_without_timeout(self) -> None:
        """
        Wake readers that wait without a timeout, after a commit.

        A reader may wait like this although all records were closed, because a thread may have closed them in
        between.
        """
        if self._has_resting:
            self.wake_readers()

    def wake_readers(self) -> None:
        self._has_resting = False
        self._moved.set()
        self._moved = asyncio.Event()


class LogWatermarks:
    """The watermarks of a log with one writing process. All calls are on the event loop."""

    def __init__(self, *, hold_s: float, clock: Clock) -> None:
        self._hold_s = hold_s
        self._clock = clock
        self._closed_below: dict[str, int] = {}
        self._open: deque[tuple[float, Mapping[str, int]]] = deque()
        self._frozen = False
        self._readers = WaitingReaders(self.lowest_open_number, self._seconds_until_next_records_close)

    def set_watermarks_at_start(
        self, next_numbers: Mapping[str, int], open_records: Iterable[OpenRecords] = ()
    ) -> None:
        """
        Set the state at a start. Records committed less than `hold_s` seconds ago stay open for the remaining
        time.
        """
        self._closed_below = dict(next_numbers)
        now = self._clock.now()
        timer = self._clock.monotonic()
        young = sorted(recent for recent in open_records if recent.at > now - self._hold_s)
        for recent in young:
            self._closed_below[recent.topic] = min(recent.first, self._closed_below.get(recent.topic, 1))
            # at most the whole waiting time, because the wall clock may have been set back
            left_s = min(self._hold_s, recent.at + self._hold_s - now)
            self._open.append((timer + left_s, {recent.topic: recent.next}))

    def close_below(self, topic: str, lowest_open_number: int) -> None:
        """
        Close the records that a reader saw before the start, because they must not change, even if they would
        still be open.
        """
        if self._open:
            highest = max(numbers.get(topic, 1) for _, numbers in self._open)
            self._raise_watermarks({topic: min(lowest_open_number, highest)})

    def pause_watermarks(self) -> dict[str, int]:
        """Return the watermarks, and keep them unchanged until `resume_watermarks_after_commit`."""
        closed = self.lowest_open_number_by_topic()
        self._frozen = True
        return closed

    def resume_watermarks_after_commit(self, next_numbers: Mapping[str, int] | None = None) -> None:
        """
        Let the watermarks move again after a commit. If the commit succeeded, its records, below
        `next_numbers`, are now open.
        """
        self._frozen = False
        if next_numbers:
            self._open.append((self._clock.monotonic() + self._hold_s, next_numbers))
        self._close_due_records()
        self._readers.wake_readers_without_timeout()

    def lowest_open_number_by_topic(self) -> dict[str, int]:
        """
        Return all watermarks at one moment, so that no commit appears open in one topic and closed in
        another.
        """
        if self._open:
            self._close_due_records()
        return dict(self._closed_below)

    def lowest_open_number(self, topic: str) -> int:
        if self._open:
            self._close_due_records()
        return self._closed_below.get(topic, 1)

    def watermark_changes(self, topic: str) -> AsyncIterator[int]:
        return self._readers.watermark_changes(topic)

    def _seconds_until_next_records_close(self) -> float | None:
        return self._open[0][0] - self._clock.monotonic() if self._open else None

    def _close_due_records(self) -> None:
        if self._frozen:
            return
        now = self._clock.monotonic()
        while self._open and self._open[0][0] <= now:
            self._raise_watermarks(self._open.popleft()[1])

    def _raise_watermarks(self, next_numbers: Mapping[str, int]) -> None:
        for topic, number in next_numbers.items():
            self._closed_below[topic] = max(number, self._closed_below.get(topic, 1))
