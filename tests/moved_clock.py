"""A clock that stands still until a test moves it."""

from __future__ import annotations


class MovedClock:
    """Wall clock and timer move together."""

    def __init__(self, at: float = 1_790_000_000.0) -> None:
        self._at = at

    def now(self) -> float:
        return self._at

    def monotonic(self) -> float:
        return self._at

    def move(self, seconds: float) -> None:
        self._at += seconds
