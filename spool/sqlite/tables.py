"""The files of a data directory as tables, for another engine to take over. Nobody else has them open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from spool import installation
from spool.errors import SpoolUnavailable
from spool.sqlite import FILE
from spool.sqlite.directory import lock_directory
from spool.sqlite.ledger.store import FILE as LEDGER
from spool.sqlite.registry.store import FILE as REGISTRY
from spool.transfer.tables import KeptTable

_FILES = {"": FILE, "registry": REGISTRY, "ledger": LEDGER}


class SqliteTables:
    """See `spool.transfer.tables.KeptTables`. Used on the thread that opened it; rows come in order of their ids."""

    def __init__(self, secret: bytes, connections: dict[str, sqlite3.Connection]) -> None:
        self.secret = secret
        self._connections = connections

    def table(self, name: str) -> KeptTable:
        file, _, table = name.rpartition(".")
        try:
            cursor = self._connections[file].execute(f'SELECT * FROM "{table}"')
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"{_FILES[file]} cannot be read: {error}") from error
        return KeptTable(columns=[column[0] for column in cursor.description], rows=iter(cursor))


@contextmanager
def open_tables(directory: Path) -> Iterator[SqliteTables]:
    """SpoolLocked while a process has the directory."""
    lock = lock_directory(directory)
    try:
        with ExitStack() as stack:
            connections = {}
            for name, file in _FILES.items():
                address = f"{(directory / file).absolute().as_uri()}?mode=ro"
                connections[name] = stack.enter_context(closing(sqlite3.connect(address, uri=True)))
            yield SqliteTables(installation.installation_secret(directory), connections)
    finally:
        lock.release()
