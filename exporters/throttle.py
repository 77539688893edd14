"""
Which of a route's workers may send, and when: what the answers so far mean for the route as a whole.

Pure except for the clock. Timers are monotonic: a step of the wall clock changes no wait.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from exporters.backoff import Backoff
from spool.clock import Clock
from spool.deliveries.rules import SUSPECT_AFTER
from spool.deliveries.values import PARKED, REFUSING, RUNNING, Delivery

# While everything is refused, that many single records are tried; one more for every ten minutes of it, so
# that no run of bad records, however long, can hide that the destination takes others.
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
        self._shown: str | None = None  # the reason that operators see beside the state
        self._waits_until = 0.0
        self._asked_until = 0.0  # by the destination: another delivery's success does not shorten it
        self._refusing_since = clock.monotonic()
        self._suspects: Counter[int] = Counter()  # errors of each delivery since the last success, by id

    def now(self) -> float:
        """Seconds since the epoch as of start, moved on by the monotonic clock."""
        return self._epoch + self._clock.monotonic()

    def rest_s(self, place: int) -> float:
        """Return how long the worker at a place waits: 0 if it may send, inf if another worker must succeed first."""
        if place > 0 and self._is_narrow():
            return inf
        return max(0.0, max(self._waits_until, self._asked_until) - self._clock.monotonic())

    def max_suspects(self) -> int:
        return MAX_SUSPECTS + int((self._clock.monotonic() - self._refusing_since) / ANOTHER_SUSPECT_S)

    def open(self) -> None:
        """End every wait; the state stays."""
        self._waits_until = self._asked_until = 0.0

    def succeed(self) -> bool:
        """A record was accepted. True if the route was not running or had failed."""
        recovered = self.state != RUNNING or self._shown is not None
        self.state = RUNNING
        self._failures = self._refusals = 0
        self._shown = None
        self._waits_until = 0.0
        self._suspects.clear()
        return recovered

    def suspect(self, delivery: int) -> None:
        """A delivery met an error that it may be the cause of."""
        self._suspects[delivery] += 1

    def is_suspect(self, delivery: Delivery) -> bool:
        """
        True if a delivery met so many errors that it is tried in halves, though nothing else passed meanwhile.

        On a quiet route nothing ever passes beside it. Where the destination is to blame, halving costs
        little: one request goes out at a time, and the halves must meet as many errors again. Where the other
        half passed, one error is enough.
        """
        return self._suspects[delivery.id] >= (1 if delivery.proven else SUSPECT_AFTER)

    def search(self) -> None:
        """A batch was refused: until one is accepted, one request at a time looks for the record at fault."""
        self._refusals += 1

    def refuse(self) -> None:
        """A single record was refused and nothing proves that others are not."""
        if self.state != REFUSING:
            self.state = REFUSING
            self._refusing_since = self._clock.monotonic()
            self._refusals = 0
        self._refusals += 1
        self._wait_for(self._backoff.delay_s(self._refusals))

    def park(self, seconds: float) -> None:
        self.state = PARKED
        self._wait_for(seconds)

    def fail(self, began: int, words: str, *, hint_s: float | None) -> bool:
        """
        Note a failure without an answer, or with one that asks to wait. True if operators should see `words`
        as the reason.

        The first failure delays nothing: another delivery may pass. The second in a row does.
        """
        if began == self.round:
            self.round += 1
            self._failures += 1
            if self._failures > 1:
                self._wait_for(self._backoff.delay_s(self._failures - 1))
        if hint_s:
            asked_s = self._backoff.delay_s(1, hint_s)
            self._asked_until = max(self._asked_until, self._clock.monotonic() + asked_s)
        if self._failures < 2 or words == self._shown:
            return False
        self._shown = words
        return True

    def _is_narrow(self) -> bool:
        return self.state != RUNNING or self._failures > 0 or self._refusals > 0

    def _wait_for(self, seconds: float) -> None:
        self._waits_until = max(self._waits_until, self._clock.monotonic() + seconds)
