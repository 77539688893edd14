"""Counts of what every request has, in plain numbers: a counter of the library takes a lock each time."""

from __future__ import annotations

from prometheus_client import Counter


class Tally:
    """What counters lack until `add_up`, which is called before they are read. One thread counts and reads."""

    def __init__(self) -> None:
        self._counts: dict[Counter, int] = {}

    def add(self, counter: Counter) -> None:
        """One more."""
        self._counts[counter] = self._counts.get(counter, 0) + 1

    def add_up(self) -> None:
        counts, self._counts = self._counts, {}
        for counter, n in counts.items():
            counter.inc(n)
