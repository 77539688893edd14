"""
Who of a route's workers may send now, and when: what the answers so far mean for the route as a whole.

Pure but for the clock. Timers are monotonic: a step of the wall clock neither hurries nor delays anybody.
"""

from __future__ import annotations

from math import inf

from exporters.backoff import Backoff
from spool.clock import Clock

RUNNING = "running"
PARKED = "parked"
REFUSING = "refusing"

# While everything is refused, that many single records are tried; one more for every ten minutes of it, so that no
# run of bad records, however long, can hide that the destination takes others.
MAX_SUSPECTS = 16
ANOTHER_SUSPECT_S = 600.0


class RouteThrottle:
    def __init__(self, clock: Clock, backoff: Backoff) -> None:
        self.state = RUNNING
        self.round = 0  # failures that began in the same round are one failure
        self._clock = clock
        self._backoff = backoff
        self._epoch = clock.now() - clock.monotonic()
        self._failures = 0
        self._refusals = 0
        self._told: str | None = None  # the reason that operators see beside the state
        self._closed_until = 0.0
        self._asked_until = 0.0  # by the destination: another delivery's success does not shorten it
        self._refusing_since = clock.monotonic()

    def now(self) -> float:
        """Seconds since the epoch as of start, moved on by the monotonic clock."""
        return self._epoch + self._clock.monotonic()

    def rest_s(self, place: int) -> float:
        """How long the worker at a place waits: 0 when it may send, for ever when others must succeed first."""
        if place > 0 and self._narrow():
            return inf
        return max(0.0, max(self._closed_until, self._asked_until) - self._clock.monotonic())

    def max_suspects(self) -> int:
        return MAX_SUSPECTS + int((self._clock.monotonic() - self._refusing_since) / ANOTHER_SUSPECT_S)

    def open(self) -> None:
        """Forget the waiting, not why."""
        self._closed_until = self._asked_until = 0.0

    def worked(self) -> bool:
        """A record was accepted. True when the route had something to get over."""
        recovered = self.state != RUNNING or self._told is not None
        self.state = RUNNING
        self._failures = self._refusals = 0
        self._told = None
        self._closed_until = 0.0
        return recovered

    def searching(self) -> None:
        """A batch was refused: until something is accepted, one request at a time looks for the culprit."""
        self._refusals += 1

    def refused(self) -> None:
        """A single record was refused and nothing proves that others are not."""
        if self.state != REFUSING:
            self.state = REFUSING
            self._refusing_since = self._clock.monotonic()
            self._refusals = 0
        self._refusals += 1
        self._close(self._backoff.delay_s(self._refusals))

    def park(self, seconds: float) -> None:
        self.state = PARKED
        self._close(seconds)

    def failed(self, began: int, words: str, *, hint_s: float | None) -> bool:
        """
        No answer, or one that asks for patience. True when the operator is to be told these words.

        The first failure closes nothing: another delivery may pass. The second in a row does.
        """
        if began == self.round:
            self.round += 1
            self._failures += 1
            if self._failures > 1:
                self._close(self._backoff.delay_s(self._failures - 1))
        if hint_s:
            asked_s = self._backoff.delay_s(1, hint_s)
            self._asked_until = max(self._asked_until, self._clock.monotonic() + asked_s)
        if self._failures < 2 or words == self._told:
            return False
        self._told = words
        return True

    def _narrow(self) -> bool:
        return self.state != RUNNING or self._failures > 0 or self._refusals > 0

    def _close(self, seconds: float) -> None:
        self._closed_until = max(self._closed_until, self._clock.monotonic() + seconds)
