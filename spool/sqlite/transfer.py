"""
The files of a data directory as tables, for copies and archives. No other process may have the files open.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from spool import installation
from spool.container_files.values import MAX_HEAD_BYTES
from spool.disks import create_flushed_file, flush_directory, flush_file, make_directory
from spool.errors import NotAllowed, SpoolDamaged, SpoolUnavailable
from spool.settings import SpoolSettings
from spool.sqlite.container_contents import DIRECTORY, DRAFT, PIECE
from spool.sqlite.database import Database
from spool.sqlite.directory import (
    LEDGER,
    REGISTRY,
    SPOOL,
    begin_storage_copy,
    discard_copy,
    finish_storage_copy,
    lock_directory,
    require_free_for_copy,
)
from spool.sqlite.ledger import migrate_ledger as prepare_ledger
from spool.sqlite.log.queries import RECOUNT_ENTRIES
from spool.sqlite.recovery import migrate_spool
from spool.sqlite.registry import migrate_and_check as prepare_registry
from spool.storage import StorageOptions
from spool.transfer.tables import (
    NEWEST_NUMBERS,
    SETTINGS,
    KeptContent,
    KeptTable,
    OfflineStorageTables,
    OpenTables,
    Progress,
    UnfinishedStorageCopy,
    highest_id_by_table,
    portable_table_name,
    require_known_tables,
    split_rows,
)

FILES = {"": SPOOL, "registry": REGISTRY, "ledger": LEDGER}
# tables that are not copied, because they are made again from other tables, at the end or in the background
COUNTED = frozenset({"sizes", "rollups", "rolled", "billed_rollups"})
_NAMES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite#_%' ESCAPE '#' ORDER BY name"
_HAS_NUMBERS = "SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'"
_NUMBERS = "SELECT name, seq FROM sqlite_sequence"


class SqliteTables:
    """The tables of a data directory, for the thread that opened them. Rows are sorted by row id."""

    def __init__(self, directory: Path, connections: dict[str, sqlite3.Connection]) -> None:
        self.secret = installation.installation_secret(directory)
        self._directory = directory
        self._connections = connections
        self._places = {
            portable_table_name(file, table): (file, table)
            for file, connection in connections.items()
            for (table,) in _run_query(file, connection, _NAMES)
            if table not in COUNTED
        }
        self.names: Sequence[str] = (*self._places, NEWEST_NUMBERS)

    def table(self, name: str) -> KeptTable:
        if name == NEWEST_NUMBERS:
            return KeptTable(columns=("name", "seq"), rows=self._newest_numbers())
        file, table = self._places[name]
        cursor = _run_query(file, self._connections[file], f'SELECT * FROM "{table}"')
        return KeptTable(columns=[column[0] for column in cursor.description], rows=iter(cursor))

    def _newest_numbers(self) -> Iterator[tuple[str, int]]:
        for file, connection in self._connections.items():
            if _run_query(file, connection, _HAS_NUMBERS).fetchone():
                for table, number in _run_query(file, connection, _NUMBERS):
                    yield portable_table_name(file, table), number

    def contents(self) -> Iterator[KeptContent]:
        for path in sorted((self._directory / DIRECTORY).glob("*")):
            if path.suffix != DRAFT:
                with path.open("rb") as file:
                    line = file.readline(MAX_HEAD_BYTES)
                    yield KeptContent(id=path.name, head=line, pieces=iter(partial(file.read, PIECE), b""))


def _run_query(file: str, connection: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
    try:
        return connection.execute(statement)
    except sqlite3.Error as error:
        raise SpoolUnavailable(f"{FILES[file]} cannot be read: {error}") from error


async def tables_opener(options: StorageOptions) -> OpenTables:
    """
    Return a function that opens the tables of a data directory. Raises NotAllowed if the directory has no storage.
    """
    if not await asyncio.to_thread((options.directory / SPOOL).exists):
        raise NotAllowed(f"{options.directory} contains no storage to copy")
    return partial(_open_tables, options.directory)


@contextmanager
def _open_tables(directory: Path) -> Iterator[SqliteTables]:
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


# -- filling a directory from another storage ----------------------------------------------------------------


PREPARE = {"": migrate_spool, "registry": prepare_registry, "ledger": prepare_ledger}
TABLES = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite#_%' ESCAPE '#'"
_ID = re.compile(r"[0-9A-Za-z_-]+")  # only ids of this form are accepted as file names
_BEGUN = frozenset({"facts", "state"})  # tables in which a new file already has rows

_log = logging.getLogger(__name__)


async def copy_storage_into_directory(
    options: StorageOptions, open_tables: OpenTables, progress: Progress
) -> UnfinishedStorageCopy:
    """
    Fill a new directory from another storage. It is marked as an unfinished copy from the start.

    Raises NotAllowed if the directory contains files that do not belong to an unfinished copy, and
    SpoolLocked while another process fills it.
    """
    directory = options.directory
    require_free_for_copy(directory)
    lock = lock_directory(directory)
    try:
        await asyncio.to_thread(begin_storage_copy, directory)
        try:
            for name, file in FILES.items():
                await (await Database.open(directory / file, PREPARE[name])).close()
            await asyncio.to_thread(_copy_tables_and_contents_into_directory, options, open_tables, progress)
        except Exception:
            await asyncio.to_thread(discard_copy, directory)
            raise
    finally:
        lock.release()
    return UnfinishedStorageCopy(
        finish=partial(asyncio.to_thread, finish_storage_copy, directory),
        discard=partial(asyncio.to_thread, discard_copy, directory),
    )


def _copy_tables_and_contents_into_directory(
    options: StorageOptions, open_tables: OpenTables, progress: Progress
) -> None:
    directory = options.directory
    with open_tables() as tables:
        _warn_about_settings(tables.table("facts"), options.settings)
        installation.store_secret(directory / installation.FILE, tables.secret)
        known = {NEWEST_NUMBERS}
        for name, file in FILES.items():
            path = directory / file
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                # the commits are not flushed, because the complete file is flushed before the copy becomes valid
                connection.execute("PRAGMA synchronous = OFF")
                known |= _insert_tables_into_file(connection, name, tables, progress)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            flush_file(path)
        require_known_tables(tables, known)
        _store_contents(directory / DIRECTORY, tables.contents(), progress)


def _warn_about_settings(facts: KeptTable, settings: SpoolSettings) -> None:
    """
    Warn about settings of the copied storage that differ from the configuration. From now on the
    configuration applies, because a data directory stores no settings.
    """
    for fact in facts.rows:
        fact_row = dict(zip(facts.columns, fact, strict=True))
        if fact_row["name"] == SETTINGS:
            for name, value in json.loads(fact_row["value"]).items():
                if value != getattr(settings, name):
                    _log.warning(
                        "spool.%s was %s in the copied storage; now %s from the configuration applies",
                        name,
                        value,
                        getattr(settings, name),
                        extra={"action": "setting_differs", "setting": name},
                    )


def _insert_tables_into_file(
    connection: sqlite3.Connection, file: str, tables: OfflineStorageTables, progress: Progress
) -> set[str]:
    sql_by_table = dict(connection.execute(TABLES).fetchall())
    for name in sorted(sql_by_table.keys() - COUNTED):
        if portable_table_name(file, name) in tables.names:
            _insert_rows_into_table(connection, file, name, tables, progress)
    if "sizes" in sql_by_table:
        connection.execute(RECOUNT_ENTRIES)
    numbered = {
        portable_table_name(file, name): name for name, sql in sql_by_table.items() if "AUTOINCREMENT" in sql
    }
    for portable_name, number in highest_id_by_table(tables).items():
        if portable_name in numbered:
            connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (numbered[portable_name],))
            connection.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (numbered[portable_name], number)
            )
    return {portable_table_name(file, name) for name in sql_by_table}


def _insert_rows_into_table(
    connection: sqlite3.Connection,
    file: str,
    table_name: str,
    tables: OfflineStorageTables,
    progress: Progress,
) -> None:
    portable_name = portable_table_name(file, table_name)
    source = tables.table(portable_name)
    kinds = dict(connection.execute("SELECT name, type FROM pragma_table_info(?)", (table_name,)).fetchall())
    common_columns = [
        (index, kinds[column]) for index, column in enumerate(source.columns) if column in kinds
    ]
    rows = source.rows if portable_name != "facts" else (row for row in source.rows if SETTINGS not in row)
    columns = ", ".join(f'"{source.columns[index]}"' for index, _ in common_columns)
    verb = "INSERT OR REPLACE" if table_name in _BEGUN else "INSERT"
    statement = f'{verb} INTO "{table_name}" ({columns}) VALUES ({", ".join("?" * len(common_columns))})'
    row_count = 0
    progress(portable_name, row_count)
    for part in split_rows(rows):
        _insert_rows(
            connection,
            statement,
            ([_decode_text(row[index], kind) for index, kind in common_columns] for row in part),
        )
        row_count += len(part)
        progress(portable_name, row_count)


def _decode_text(value: object, kind: str) -> object:
    """Decode bytes for a text column, because other engines may store texts as bytes."""
    return value.decode() if kind == "TEXT" and isinstance(value, bytes) else value


def _insert_rows(connection: sqlite3.Connection, statement: str, rows: Iterable[Sequence[object]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(statement, rows)
    connection.execute("COMMIT")


def _store_contents(directory: Path, contents: Iterable[KeptContent], progress: Progress) -> None:
    for file_count, content in enumerate(contents, start=1):
        if not _ID.fullmatch(content.id):
            raise SpoolDamaged(f"{content.id!r} is not a valid container file id")
        make_directory(directory, 0o700)
        with create_flushed_file(directory / content.id) as file:
            file.write(content.head)
            file.writelines(content.pieces)
        progress("container files", file_count)
    if directory.exists():
        flush_directory(directory)
