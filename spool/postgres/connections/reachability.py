"""
What the connections of a process know together of their server: when it is tried again, whether it answers,
and whether it is the newest of those that the address names.
"""

from __future__ import annotations

import math
import random
import time

from spool.errors import SpoolUnavailable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0  # between attempts to connect, jittered
# for so long after one connection was broken off, and until one answers, the others wait less
SILENT_S = 60.0


class Reachability:
    """One for all connections of a process, on whatever threads."""

    def __init__(self) -> None:
        self.pause = Pause()
        self._silent_until = -math.inf
        self._newest_timeline = 0
        self.was_looked_at = False  # each server of several, once

    @property
    def is_silent(self) -> bool:
        """True if the server did not answer in time, lately."""
        return time.monotonic() < self._silent_until

    def noticed_silence(self) -> None:
        self._silent_until = time.monotonic() + SILENT_S

    def noticed_answer(self) -> None:
        """
        Note an answer: only one connection was silent, or the server is back. Long work has its whole time again.
        """
        self._silent_until = -math.inf

    def is_old(self, timeline: int | None) -> bool:
        """
        True if a newer primary than this one was seen before: it was promoted in its place.

        PostgreSQL counts promotions in the timeline; None where that is not known.
        """
        self._newest_timeline = max(self._newest_timeline, timeline or 0)
        return timeline is not None and timeline < self._newest_timeline


class Pause:
    """Between attempts to connect to a database that is away."""

    def __init__(self) -> None:
        self._length_s = 0.0
        self._until = 0.0
        self._why = ""
        self.failures = 0

    def check(self) -> None:
        """SpoolUnavailable while the next attempt is not due."""
        if time.monotonic() < self._until:
            raise SpoolUnavailable(self._why)

    def failed(self, why: str) -> None:
        self._length_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._length_s))
        self._why = why
        self.failures += 1
        self._until = time.monotonic() + self._length_s * random.uniform(0.5, 1.0)

    def over(self) -> None:
        self._length_s = self._until = 0.0
