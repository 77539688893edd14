"""The log on SQLite."""

from __future__ import annotations

from spool.clock import Clock
from spool.log import LogSettings, Observer
from spool.sqlite.database import Database


class SqliteLog:
    """Skeleton of the factory's first day: the verbs of spool.log.Log follow."""

    def __init__(
        self, database: Database, *, settings: LogSettings, clock: Clock, secret: bytes, observer: Observer | None
    ) -> None:
        self._database = database

    def closed_below(self, topic: str) -> int:
        return 1

    async def close(self) -> None:
        return None
