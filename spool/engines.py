"""
The storage engines, by the names that `[storage] engine` accepts. Each engine has one folder and one line here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from spool.errors import SpoolError
from spool.ledger.work import Digests
from spool.people import People
from spool.settings import POSTGRES, SQLITE, StorageSettings

# import only for types, because this import loads all storage code, and readers of a configuration need only names
if TYPE_CHECKING:
    from spool.storage import Engine, Recovered, Storage, StorageOptions

__all__ = [
    "ENGINES",
    "MEMORY",
    "POSTGRES",
    "SQLITE",
    "certificate_files",
    "load_engine",
    "open_storage",
    "problems",
    "recover",
]

MEMORY = "memory"
# For each engine, the module with its `ENGINE`. A process imports the libraries only of the engine that it opens.
ENGINES: Mapping[str, str] = {
    SQLITE: "spool.sqlite.storage",
    POSTGRES: "spool.postgres.storage",
    MEMORY: "spool.sqlite.in_memory",
}


# Python libraries that are not installed with Tollhouse, and the extra that installs them.
EXTRAS = {"psycopg": "postgres"}


def load_engine(name: str) -> Engine:
    """Return the engine of a name. Raises SpoolError if its library is not installed."""
    try:
        engine: Engine = import_module(ENGINES[name]).ENGINE
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise SpoolError(
            f'storage.engine = "{name}" needs {error.name}. Install it with: pip install '
            f'"tollhouse[{EXTRAS[error.name]}]"'
        ) from error
    return engine


def problems(settings: StorageSettings) -> Iterator[str]:
    """Yield every reason why a storage configuration is unusable."""
    if settings.engine == SQLITE:
        if settings != StorageSettings():
            yield (
                'storage: all settings except engine require storage.engine = "postgres", but it is "sqlite"'
            )
        return
    try:
        administration = load_engine(settings.engine).administration
    except SpoolError as error:
        yield str(error)
        return
    if administration is not None:
        yield from administration.problems(settings)


def certificate_files(settings: StorageSettings) -> Iterator[tuple[str, Path]]:
    """
    Yield the certificate files that the storage's address names, each with the words for it in messages. An unusable
    configuration has none; see `problems`.
    """
    try:
        administration = load_engine(settings.engine).administration
    except SpoolError:
        return
    if administration is not None:
        yield from administration.certificate_files(settings)


async def open_storage(options: StorageOptions, *, engine: str = SQLITE) -> Storage:
    """
    Open the whole storage. The caller must await `close` of the result.

    Raises SpoolLocked if another process holds the data directory, OtherSchema if a build with
    other tables wrote it, and SpoolUnavailable if it cannot be used. A damaged registry raises nothing
    here: see Storage.
    """
    storage = await load_engine(engine).open(options)
    storage.ledger.digests = Digests(storage.secret)
    persons = None if storage.registry is None else storage.registry.people.persons
    storage.ledger.people = People.for_installation(storage.secret, persons=persons)
    return storage


async def recover(options: StorageOptions, file: Path, *, engine: str = SQLITE) -> Recovered:
    """
    Import the records of a damaged file into the log of a data directory. No server may have that directory open.
    """
    return await load_engine(engine).recover(options, file)
