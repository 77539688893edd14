"""Whether the log has room for more, within `spool.max_bytes`."""

from __future__ import annotations

from spool.clock import Clock
from spool.log.retention import DrainRate
from spool.postgres.database import Connection, Database
from spool.postgres.log.retention import PostgresRetention


class LogRoom:
    """
    What is in use is known from the newest commit row, the bytes that retention has freed so far, and those
    of what is kept beside the log.
    """

    def __init__(
        self, database: Database, retention: PostgresRetention, clock: Clock, *, max_bytes: int
    ) -> None:
        self._database = database
        self._retention = retention
        self._clock = clock
        self._max_bytes = max_bytes
        self._drain = DrainRate()
        self._freed = 0  # bytes of the log before its oldest period, less those beside the log

    async def begin(self) -> None:
        """Read what was freed so far."""
        await self._database.read(self._read)

    def _read(self, connection: Connection) -> None:
        self._freed = self._retention.freed(connection) - self._retention.heard(connection)

    def check(self, connection: Connection, size: int) -> None:
        """SpoolFull when too much is left of a log that has had so many bytes. On the connection's thread."""
        if size - self._freed >= self._max_bytes:
            self._read(connection)  # another node may have removed a period
            if size - self._freed >= self._max_bytes:
                raise self._drain.spool_full()

    async def note_removal(self) -> None:
        """Measure how fast the log drains, after a run of retention."""
        await self.begin()
        self._drain.note(self._clock.monotonic(), await self._database.snapshot(self._retention.progress))
