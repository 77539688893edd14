"""A clock that stands still until a test moves it."""

from __future__ import annotations


class MovedClock:
    """Wall clock and timer move together, unless somebody sets the wall clock back."""

    def __init__(self, at: float = 1_790_000_000.0) -> None:
        self._at = at
        self._behind_s = 0.0

    def now(self) -> float:
        return self._at - self._behind_s

    def monotonic(self) -> float:
        return self._at

    def move(self, seconds: float) -> None:
        self._at += seconds

    def set_back(self, seconds: float) -> None:
        """The wall clock alone: timers go on."""
        self._behind_s += seconds
