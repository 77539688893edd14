"""The clock is a parameter: tests move it, and a step of the wall clock never moves a timer."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, for what is stored and shown."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward, for timers."""
        ...


class SystemClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
