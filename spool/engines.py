"""The storage engines by the name that `[storage] engine` gives: an engine is one folder and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from spool.storage import Engine, Recovered, Storage, StorageOptions

SQLITE, MEMORY = "sqlite", "memory"
# Names of modules, each with its ENGINE: a process pays for the engine that it opens, and for no other's library.
ENGINES: Mapping[str, str] = {
    SQLITE: "spool.sqlite.storage",
    MEMORY: "spool.memory.storage",
}


def engine_of(name: str) -> Engine:
    """The engine of that name."""
    engine: Engine = import_module(ENGINES[name]).ENGINE
    return engine


async def open_storage(options: StorageOptions, *, engine: str = SQLITE) -> Storage:
    """
    Open everything that is kept; the caller awaits `close` of what is returned.

    SpoolLocked when another process holds the data directory, SpoolFromTheFuture when a newer version wrote it,
    SpoolUnavailable when it cannot be used. A damaged registry is no error: see Storage.
    """
    return await engine_of(engine).open(options)


async def recover(options: StorageOptions, file: Path, *, engine: str = SQLITE) -> Recovered:
    """Bring the records of a damaged file into the log of a data directory that no server has open."""
    return await engine_of(engine).recover(options, file)
