"""When a request may leave: the wait after failures, and the rate and order that a destination wants."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from exporters.errors import Misconfigured, Retryable
from spool.clock import Clock
from spool.deliveries.values import Delivery
from spool.turns.fair_turns import TokenBucket

LONGEST_HINT_S = 86_400.0  # a date further away comes from a wrong clock


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Exponential from `first_s` to `most_s`, with jitter so that gateways do not return all at once."""

    first_s: float = 1.0
    most_s: float = 30.0

    def delay_s(self, failures: int, hint_s: float | None = None, *, chance: float | None = None) -> float:
        """
        The wait after `failures` (at least 1) failures in a row, at least as long as the destination asked for.

        `chance` from 0 to 1 is drawn when not given: the wait lies between half and the whole of the step.
        """
        step = min(self.most_s, self.first_s * 2.0 ** min(max(failures, 1), 32))
        drawn = random.random() if chance is None else chance
        waiting = max(self.first_s, step * (0.5 + 0.5 * drawn))
        return max(waiting, min(hint_s or 0.0, LONGEST_HINT_S))


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
