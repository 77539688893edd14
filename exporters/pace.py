"""How fast and in which order requests may be sent, for destinations that limit it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from exporters.errors import Misconfigured, Retryable
from spool.clock import Clock
from spool.deliveries.values import Delivery


class TokenBucket:
    """A token bucket: `per_s` tokens a second over time, and at most `burst` at once."""

    def __init__(self, clock: Clock, *, per_s: float, burst: float) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at = clock.monotonic()
        self._turn = asyncio.Lock()

    async def take(self, n: int) -> None:
        """Wait for n tokens, in the order of the calls."""
        async with self._turn:
            wanted = min(n, self._burst)
            while (short := wanted - self._filled()) > 0:  # noqa: ASYNC110 - it waits for time alone
                await asyncio.sleep(short / self._per_s)
            self._left -= wanted

    def give_back(self, n: int) -> None:
        """Return n tokens that were not used."""
        self._left = min(self._burst, self._filled() + n)

    def _filled(self) -> float:
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        return self._left


class InOrder:
    """Keeps the deliveries of a sequence in order: while one waits, those with later numbers wait too."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[int]] = defaultdict(set)  # by sequence, the first numbers

    @contextmanager
    def turn(self, sequence: str, delivery: Delivery) -> Iterator[None]:
        """A context around sending. Retryable, before anything is sent, while an earlier delivery waits."""
        waiting = self._waiting[sequence]
        if not delivery.replay and any(first < delivery.first for first in waiting):
            waiting.add(delivery.first)  # later ones wait for this one too, whichever is due first
            raise Retryable("an earlier request must arrive first", answered=False)
        try:
            yield
        except (Retryable, Misconfigured):
            waiting.add(delivery.first)
            raise
        except Exception:
            waiting.discard(delivery.first)
            raise
        waiting.discard(delivery.first)
