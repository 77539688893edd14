"""The storage engines by the name that `[storage] engine` gives: an engine is one folder and one line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from spool.sqlite.storage import open_storage as open_sqlite
from spool.storage import Storage, StorageOptions

SQLITE = "sqlite"
ENGINES: Mapping[str, Callable[[StorageOptions], Awaitable[Storage]]] = {
    SQLITE: open_sqlite,
}


async def open_storage(options: StorageOptions, *, engine: str = SQLITE) -> Storage:
    """
    Open everything that is kept; the caller awaits `close` of what is returned.

    SpoolLocked when another process holds the data directory, SpoolFromTheFuture when a newer version wrote it,
    SpoolUnavailable when it cannot be used. A damaged registry is no error: see Storage.
    """
    return await ENGINES[engine](options)
