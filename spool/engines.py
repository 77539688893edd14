"""The storage engines by the name that `[storage] engine` gives: an engine is one folder and one line here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from spool.errors import SpoolError
from spool.people import People
from spool.settings import POSTGRES, SQLITE, StorageSettings

# it brings everything that is kept, and whoever reads a configuration needs the names alone
if TYPE_CHECKING:
    from spool.storage import Engine, Recovered, Storage, StorageOptions

__all__ = [
    "ENGINES",
    "MEMORY",
    "POSTGRES",
    "SQLITE",
    "engine_of",
    "open_storage",
    "problems",
    "recover",
]

MEMORY = "memory"
# Names of modules, each with its ENGINE: a process pays for the engine that it opens, and for no other's
# library.
ENGINES: Mapping[str, str] = {
    SQLITE: "spool.sqlite.storage",
    POSTGRES: "spool.postgres.storage",
    MEMORY: "spool.sqlite.in_memory",
}


# An engine's library that is not installed with Tollhouse: the extra of that name brings it.
EXTRAS = {"psycopg": "postgres"}


def engine_of(name: str) -> Engine:
    """The engine of that name; SpoolError where its library is not installed."""
    try:
        engine: Engine = import_module(ENGINES[name]).ENGINE
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise SpoolError(
            f'storage.engine = "{name}" needs {error.name}: pip install "tollhouse[{EXTRAS[error.name]}]"'
        ) from error
    return engine


def problems(settings: StorageSettings) -> Iterator[str]:
    """Every reason why the storage of a configuration cannot be used."""
    if settings.engine == SQLITE:
        if settings != StorageSettings():
            yield 'storage: its other settings are for storage.engine = "postgres", and it is "sqlite"'
        return
    try:
        administration = engine_of(settings.engine).administration
    except SpoolError as error:
        yield str(error)
        return
    if administration is not None:
        yield from administration.problems(settings)


async def open_storage(options: StorageOptions, *, engine: str = SQLITE) -> Storage:
    """
    Open everything that is kept; the caller awaits `close` of what is returned.

    SpoolLocked when another process holds the data directory, SpoolFromTheFuture when a newer version wrote
    it, SpoolUnavailable when it cannot be used. A damaged registry is not an error: see Storage.
    """
    storage = await engine_of(engine).open(options)
    storage.ledger.people = People.of_installation(storage.secret)
    return storage


async def recover(options: StorageOptions, file: Path, *, engine: str = SQLITE) -> Recovered:
    """Bring the records of a damaged file into the log of a data directory that no server has open."""
    return await engine_of(engine).recover(options, file)
