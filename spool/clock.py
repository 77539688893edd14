"""The clock is a parameter: tests move it, and a step of the wall clock never moves a timer."""

from __future__ import annotations

import time
from math import inf
from typing import Protocol

AHEAD_S = 300.0  # clocks of two machines are nearer to each other than this


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, for what is stored and shown."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward, for timers."""
        ...


def elapsed_s(since: float, now: float) -> float:
    """
    Return the seconds since a stored time. A time far ahead was written by a clock that was ahead for a while:
    what waits for it has waited long enough, so it is infinitely long ago.
    """
    return inf if since > now + AHEAD_S else now - since


class SystemClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
