"""A clock that only a test moves."""

from __future__ import annotations


class MovedClock:
    """A wall clock and a timer that move together, except when a test sets the wall clock back."""

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
        """Set only the wall clock back. The timer is unchanged."""
        self._behind_s += seconds
