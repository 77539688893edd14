"""How fast and in which order requests may be sent, for destinations that limit it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from exporters.errors import Misconfigured, Retryable
from spool.clock import Clock
from spool.deliveries.values import Delivery
from spool.turns.token_bucket import TokenBucket


class Pace:
    """At most `per_s` a second over time, and `burst` at once."""

    def __init__(self, clock: Clock, *, per_s: float, burst: float) -> None:
        self._bucket = TokenBucket(clock, per_s=per_s, burst=burst)
        self._turn = asyncio.Lock()

    async def take(self, n: int) -> None:
        """Wait until n may be sent, in the order of the calls."""
        async with self._turn:
            wanted = min(n, self._bucket.burst)
            while wait_s := self._bucket.wait_s(wanted):  # noqa: ASYNC110 - it waits for time alone
                await asyncio.sleep(wait_s)
            self._bucket.charge(wanted)

    def give_back(self, n: int) -> None:
        """Return what was waited for and not sent."""
        self._bucket.charge(-n)


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
