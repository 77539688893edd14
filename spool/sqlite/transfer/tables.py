"""The files of a data directory as tables, for another storage to take over. Nobody else has them open."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from spool import installation
from spool.container_files import head
from spool.errors import NotAllowed, SpoolUnavailable
from spool.sqlite import FILE
from spool.sqlite.container_contents import DIRECTORY, DRAFT, PIECE
from spool.sqlite.directory import lock_directory
from spool.sqlite.ledger.store import FILE as LEDGER
from spool.sqlite.registry.store import FILE as REGISTRY
from spool.storage import StorageOptions
from spool.transfer.tables import KeptContent, KeptTable, OpenTables

FILES = {"": FILE, "registry": REGISTRY, "ledger": LEDGER}
_NOT_HERE = frozenset({"heard"})  # one process keeps the log, and has this in its memory


class SqliteTables:
    """
    See `spool.transfer.tables.KeptTables`. Used on the thread that opened it; rows come in order of their
    ids.
    """

    def __init__(self, directory: Path, connections: dict[str, sqlite3.Connection]) -> None:
        self.secret = installation.installation_secret(directory)
        self._directory = directory
        self._connections = connections

    def table(self, name: str) -> KeptTable:
        if name in _NOT_HERE:
            return KeptTable(columns=(), rows=iter(()))
        file, _, table = name.rpartition(".")
        try:
            cursor = self._connections[file].execute(f'SELECT * FROM "{table}"')
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"{FILES[file]} cannot be read: {error}") from error
        return KeptTable(columns=[column[0] for column in cursor.description], rows=iter(cursor))

    def contents(self) -> Iterator[KeptContent]:
        for path in sorted((self._directory / DIRECTORY).glob("*")):
            if path.suffix != DRAFT:
                with path.open("rb") as file:
                    line = file.readline(head.MAX_BYTES)
                    yield KeptContent(id=path.name, head=line, pieces=iter(partial(file.read, PIECE), b""))


async def tables(options: StorageOptions) -> OpenTables:
    """What a data directory holds. NotAllowed where that is nothing."""
    if not await asyncio.to_thread((options.directory / FILE).exists):
        raise NotAllowed(f"there is no storage in {options.directory} to copy")
    return partial(_open_tables, options.directory)


@contextmanager
def _open_tables(directory: Path) -> Iterator[SqliteTables]:
    """SpoolLocked while a process has the directory."""
    lock = lock_directory(directory)
    try:
        with ExitStack() as stack:
            connections = {}
            for name, file in FILES.items():
                address = f"{(directory / file).absolute().as_uri()}?mode=ro"
                connections[name] = stack.enter_context(closing(sqlite3.connect(address, uri=True)))
            yield SqliteTables(directory, connections)
    finally:
        lock.release()
