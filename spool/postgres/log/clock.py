"""The time of a log that several nodes share: the clock of the database."""

from __future__ import annotations

from spool.clock import Clock
from spool.postgres.database import Database


class DatabaseClock:
    """The database's clock counts, and between two answers of it our timer."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._noted = 0.0, clock.monotonic()

    def note(self, now: float) -> None:
        """The database has just said the time. From any thread."""
        self._noted = now, self._clock.monotonic()

    def now(self) -> float:
        moved = self._database.now()
        if moved is not None:
            return moved
        at, timer = self._noted
        return at + self._clock.monotonic() - timer
