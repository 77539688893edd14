"""A token bucket: how fast something may be used over time, and how much of it at once."""

from __future__ import annotations

from spool.clock import Clock

NEARLY = 1e-6  # token: what rounding may leave of one that is there


class TokenBucket:
    """`per_s` tokens a second over time, at most `burst` at once. It is full at first."""

    __slots__ = ("_at", "_clock", "_level", "_per_s", "burst")

    def __init__(self, clock: Clock, *, per_s: float, burst: float) -> None:
        self.burst = burst
        self._clock = clock
        self._per_s = per_s
        self._level = burst
        self._at = clock.monotonic()

    def wait_s(self, amount: float) -> float:
        """Seconds until it holds `amount`, which is at most `burst`; 0 now."""
        missing = amount - self._filled()
        return 0.0 if missing <= NEARLY else missing / self._per_s

    def charge(self, amount: float) -> None:
        """Take `amount`, more than there is too: then it is paid off before the next."""
        self._level = self._filled() - amount

    def _filled(self) -> float:
        now = self._clock.monotonic()
        self._level = min(self.burst, self._level + (now - self._at) * self._per_s)
        self._at = now
        return self._level
