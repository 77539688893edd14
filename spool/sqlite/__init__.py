"""The spool on SQLite: `open_spool` gives the log and the deliveries of one data directory."""

from __future__ import annotations

from pathlib import Path

from spool.clock import Clock
from spool.installation import derived, installation_secret
from spool.log import Deliveries, Log, LogSettings, Observer
from spool.sqlite.database import Database
from spool.sqlite.deliveries import SqliteDeliveries
from spool.sqlite.directory import DirectoryLock, lock_directory
from spool.sqlite.log import SqliteLog
from spool.sqlite.migrations import migrate, script

__all__ = ["DirectoryLock", "SqliteSpool", "lock_directory", "open_spool"]

FILE = "spool.sqlite"


class SqliteSpool:
    """An open data directory: holds its lock until `close`."""

    def __init__(
        self, *, directory: Path, lock: DirectoryLock, database: Database, log: SqliteLog, deliveries: SqliteDeliveries, secret: bytes
    ) -> None:
        self.directory = directory
        self.secret = secret
        self.log: Log = log
        self.deliveries: Deliveries = deliveries
        self._log = log
        self._database = database
        self._lock = lock

    async def close(self) -> None:
        """Finish the commits in hand, close the file, let go of the directory."""
        await self._log.close()
        await self._database.close()
        self._lock.release()


async def open_spool(
    directory: Path, *, settings: LogSettings, clock: Clock, observer: Observer | None = None
) -> SqliteSpool:
    """SpoolLocked when another process holds the directory, SpoolFromTheFuture when a newer version wrote it."""
    lock = lock_directory(directory)
    try:
        secret = installation_secret(directory)
        versions = (script("schema.sql") + script("deliveries.sql"),)
        database = await Database.open(directory / FILE, lambda connection: migrate(connection, versions))
        log = SqliteLog(database, settings=settings, clock=clock, secret=derived(secret, "log"), observer=observer)
        deliveries = SqliteDeliveries(database, log=log, clock=clock)
    except BaseException:
        lock.release()
        raise
    return SqliteSpool(
        directory=directory, lock=lock, database=database, log=log, deliveries=deliveries, secret=secret
    )
