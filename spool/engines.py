"""The storage engines by the name that `[storage] engine` gives: an engine is one folder and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from spool.memory import storage as memory_storage
from spool.sqlite import storage as sqlite_storage
from spool.storage import Engine, Storage, StorageOptions

SQLITE, MEMORY = "sqlite", "memory"
ENGINES: Mapping[str, Engine] = {
    SQLITE: sqlite_storage.ENGINE,
    MEMORY: memory_storage.ENGINE,
}


async def open_storage(options: StorageOptions, *, engine: str = SQLITE) -> Storage:
    """
    Open everything that is kept; the caller awaits `close` of what is returned.

    SpoolLocked when another process holds the data directory, SpoolFromTheFuture when a newer version wrote it,
    SpoolUnavailable when it cannot be used. A damaged registry is no error: see Storage.
    """
    return await ENGINES[engine].open(options)
