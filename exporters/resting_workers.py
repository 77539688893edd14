"""Workers of one route that rest: news wake one of them, and one that found work wakes the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


class RestingWorkers:
    """`may_work` says of a place whether its worker may send now. Belongs to the event loop."""

    def __init__(self, may_work: Callable[[int], bool]) -> None:
        self._may_work = may_work
        self._resting: dict[int, asyncio.Event] = {}
        self.told = 0  # how often there were news that a worker which looks just now may have missed

    def wake_one(self) -> None:
        """Wake one that may work. If none rests, those that look just now look once more."""
        for place in self._resting:
            if self._may_work(place):
                self._resting.pop(place).set()
                return
        self.told += 1

    def wake_all(self) -> None:
        self.told += 1
        for woken in self._resting.values():
            woken.set()
        self._resting.clear()

    async def rest(self, place: int, seconds: float, *, told: int) -> None:
        """Wait until woken, or for some time; not at all if there were news since `told` was read."""
        if told != self.told:
            return
        woken = self._resting[place] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                # Not wait_for, which loses a cancellation in 3.11.
                async with asyncio.timeout(seconds):
                    await woken.wait()
        finally:
            self._resting.pop(place, None)
