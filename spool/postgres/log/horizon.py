"""Which records are closed, as a node knows it from the commit rows that it followed."""

from __future__ import annotations

from collections.abc import AsyncIterator

from spool.log.commits.following import SOONER_S, Following, by_topic
from spool.log.horizon import WaitingReaders
from spool.postgres.log.clock import DatabaseClock


class PostgresHorizon:
    """Belongs to the event loop, but what is followed moves on another thread."""

    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock
        self._following: Following
        self._shown: dict[str, int] = {}
        self._readers = WaitingReaders(self.closed_below, self._closes_in_s)

    def begin(self, following: Following) -> None:
        """Begin with newly read commits: earlier answers count no more, and waiting readers look again."""
        self._following = following
        self._shown = {}
        self._readers.wake()

    def moved(self) -> None:
        """Wake, after new commits, the readers that had nothing open to wait for."""
        self._readers.wake_resting()

    def closed_below(self, topic: str) -> int:
        """
        Return the horizon of the commits that outlive the loss of the machine. It never goes back, until
        everything is read again.
        """
        following = self._following
        closed = by_topic(following.closed_at(self._clock.now(), durable=following.durable))[topic]
        self._shown[topic] = max(closed, self._shown.get(topic, 1))
        return self._shown[topic]

    def changes(self, topic: str) -> AsyncIterator[int]:
        return self._readers.changes(topic)

    def is_overdue(self) -> bool:
        """True if an empty commit would have more closed: by what its row says, or as proof of those before it."""
        following = self._following
        now = self._clock.now()
        last = following.last
        due = following.closed_at(now)
        is_proven = due == following.closed_at(now, durable=following.durable)
        return due != last.closed or not is_proven or last.at > now + SOONER_S

    def _closes_in_s(self) -> float | None:
        closes_at = self._following.closes_at()
        return None if closes_at is None else closes_at - self._clock.now()
