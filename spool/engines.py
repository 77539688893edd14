"""
The storage engines by the value of `[storage] engine`. Each engine is a folder of `spool` and one entry here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from spool.erasure import Renaming
from spool.errors import SpoolError
from spool.ledger.work import WorkUnitHasher
from spool.people import People
from spool.settings import POSTGRES, SQLITE, StorageSettings

# imported only for types, because readers of a configuration need only names
if TYPE_CHECKING:
    from spool.clock import Clock
    from spool.log.protocols import RecordLog
    from spool.registry.registry_rows import RegistryStore
    from spool.settings import SpoolSettings
    from spool.storage import RecoveryResult, Storage, StorageEngine, StorageOptions

__all__ = [
    "ENGINES",
    "MEMORY",
    "POSTGRES",
    "SQLITE",
    "certificate_files",
    "empty_registry_store",
    "import_damaged_file",
    "load_engine",
    "open_storage",
    "storage_problems",
]

MEMORY = "memory"
# The module of each engine, with its `ENGINE`. A process imports only the libraries of its engine.
ENGINES: Mapping[str, str] = {
    SQLITE: "spool.sqlite.storage",
    POSTGRES: "spool.postgres.storage",
    MEMORY: "spool.sqlite.in_memory",
}


# The optional dependency group (extra) that installs each library.
EXTRAS = {"psycopg": "postgres"}


def load_engine(name: str) -> StorageEngine:
    """Return the engine. Raises SpoolError if its library is not installed."""
    try:
        engine: StorageEngine = import_module(ENGINES[name]).ENGINE
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise SpoolError(
            f'storage.engine = "{name}" needs {error.name}. Install it with: pip install '
            f'"tollhouse[{EXTRAS[error.name]}]"'
        ) from error
    return engine


def storage_problems(settings: StorageSettings) -> Iterator[str]:
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
    Yield the certificate files of the storage, each with a description for messages. If the configuration is
    unusable (see `problems`), yield nothing.
    """
    try:
        administration = load_engine(settings.engine).administration
    except SpoolError:
        return
    if administration is not None:
        yield from administration.certificate_files(settings)


async def open_storage(options: StorageOptions, *, engine: str = SQLITE) -> Storage:
    """
    Open the storage. The caller must await `close`.

    Raises SpoolLocked, OtherSchema if another build wrote the data, or SpoolUnavailable. A damaged registry
    does not raise: see `Storage`.
    """
    storage = await load_engine(engine).open(options)
    storage.ledger.digests = WorkUnitHasher(storage.secret)
    persons = None if storage.registry is None else storage.registry.people.persons
    storage.ledger.people = People.for_installation(storage.secret, persons=persons)
    if storage.registry is not None:
        await storage.registry.persons.forget_numbers_of_other_logs(storage.incarnation)
    return storage


async def open_log_in_memory(settings: SpoolSettings, clock: Clock) -> RecordLog:
    """Open an empty log in memory, without registry, totals and devices. The caller must await `close`."""
    from spool.sqlite.memory_log import open_log

    return await open_log(settings, clock)


def empty_registry_store() -> RegistryStore:
    """Return the store of a registry without rows, in memory. Each function runs at once, on the caller's thread."""
    from spool.sqlite.in_memory import new_in_memory_registry

    return new_in_memory_registry()


async def import_damaged_file(
    options: StorageOptions, file: Path, *, renaming: Renaming | None = None, engine: str = SQLITE
) -> RecoveryResult:
    """
    Import the readable records of a damaged file. No server may have the directory open. `renaming`: of people who
    were erased.
    """
    return await load_engine(engine).recover(options, file, renaming)
