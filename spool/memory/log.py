"""The log without a disk, for tests and trial runs: the same answers, nothing kept after the process."""

from __future__ import annotations

from collections.abc import Sequence

from spool.clock import Clock
from spool.log import Entry, LogSettings, Observer


class MemoryLog:
    """Skeleton of the factory's first day: the verbs of spool.log.Log follow."""

    def __init__(self, *, settings: LogSettings, clock: Clock, observer: Observer | None = None) -> None:
        self._settings = settings

    def closed_below(self, topic: str) -> int:
        return 1

    def accepted(self, topic: str) -> int:
        """The highest number given in a topic; 0 before the first."""
        return 0

    def oldest(self, topic: str) -> int:
        """The lowest number that is kept, or the next one to be given."""
        return 1

    def entries(self, topic: str, first: int, last: int) -> Sequence[Entry]:
        """What `read` answers, without waiting."""
        return []

    async def close(self) -> None:
        return None
