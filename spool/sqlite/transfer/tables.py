"""The files of a data directory as tables, for another storage to take over. Nobody else has them open."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from spool import installation
from spool.container_files import head
from spool.errors import NotAllowed, SpoolUnavailable
from spool.sqlite.container_contents import DIRECTORY, DRAFT, PIECE
from spool.sqlite.directory import LEDGER, REGISTRY, SPOOL, lock_directory
from spool.storage import StorageOptions
from spool.transfer.tables import NEWEST_NUMBERS, KeptContent, KeptTable, OpenTables, kept_name

FILES = {"": SPOOL, "registry": REGISTRY, "ledger": LEDGER}
COUNTED = frozenset(
    {"sizes", "rollups", "rolled", "billed_rollups"}
)  # from the others, at the end or in the background
_NAMES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite#_%' ESCAPE '#' ORDER BY name"
_HAS_NUMBERS = "SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'"
_NUMBERS = "SELECT name, seq FROM sqlite_sequence"


class SqliteTables:
    """See `spool.transfer.tables.KeptTables`. Used on the thread that opened it; rows come in order of their ids."""

    def __init__(self, directory: Path, connections: dict[str, sqlite3.Connection]) -> None:
        self.secret = installation.installation_secret(directory)
        self._directory = directory
        self._connections = connections
        self._places = {
            kept_name(file, table): (file, table)
            for file, connection in connections.items()
            for (table,) in _read(file, connection, _NAMES)
            if table not in COUNTED
        }
        self.names: Sequence[str] = (*self._places, NEWEST_NUMBERS)

    def table(self, name: str) -> KeptTable:
        if name == NEWEST_NUMBERS:
            return KeptTable(columns=("name", "seq"), rows=self._newest_numbers())
        file, table = self._places[name]
        cursor = _read(file, self._connections[file], f'SELECT * FROM "{table}"')
        return KeptTable(columns=[column[0] for column in cursor.description], rows=iter(cursor))

    def _newest_numbers(self) -> Iterator[tuple[str, int]]:
        for file, connection in self._connections.items():
            if _read(file, connection, _HAS_NUMBERS).fetchone():
                for table, number in _read(file, connection, _NUMBERS):
                    yield kept_name(file, table), number

    def contents(self) -> Iterator[KeptContent]:
        for path in sorted((self._directory / DIRECTORY).glob("*")):
            if path.suffix != DRAFT:
                with path.open("rb") as file:
                    line = file.readline(head.MAX_BYTES)
                    yield KeptContent(id=path.name, head=line, pieces=iter(partial(file.read, PIECE), b""))


def _read(file: str, connection: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
    try:
        return connection.execute(statement)
    except sqlite3.Error as error:
        raise SpoolUnavailable(f"{FILES[file]} cannot be read: {error}") from error


async def tables(options: StorageOptions) -> OpenTables:
    """Return the opener of a data directory's tables. NotAllowed if the directory has no storage."""
    if not await asyncio.to_thread((options.directory / SPOOL).exists):
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
