"""
Takes over what another storage kept, into a new data directory: same numbers, ids and receipts.

Tables have the columns that they have here; a column that the source does not know keeps what a new row has
in it. What was kept of known ids beyond the stored runs is read from the records at the first start, as
after a crash.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from spool import installation
from spool.directories import flush_directory, flush_file, make_directory, new_file
from spool.errors import SpoolDamaged
from spool.settings import SpoolSettings
from spool.sqlite.container_contents import DIRECTORY
from spool.sqlite.database import Database
from spool.sqlite.directory import lock_directory
from spool.sqlite.ledger.ledger_rows import prepare as prepare_ledger
from spool.sqlite.log.queries import RECOUNT_ENTRIES
from spool.sqlite.recovery import migrate_spool
from spool.sqlite.registry.store import prepare as prepare_registry
from spool.sqlite.transfer import unfinished
from spool.sqlite.transfer.tables import COUNTED, FILES
from spool.storage import StorageOptions
from spool.transfer.tables import (
    NEWEST_NUMBERS,
    SETTINGS,
    KeptContent,
    KeptTable,
    KeptTables,
    MadeCopy,
    OpenTables,
    Progress,
    check_known,
    kept_name,
    newest_numbers,
    parts,
)

PREPARE = {"": migrate_spool, "registry": prepare_registry, "ledger": prepare_ledger}
TABLES = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite#_%' ESCAPE '#'"
_ID = re.compile(r"[0-9A-Za-z_-]+")  # a name in a directory
_BEGUN = frozenset({"facts", "state"})  # a new file has rows in them

_log = logging.getLogger(__name__)


async def take_over(options: StorageOptions, opened: OpenTables, progress: Progress) -> MadeCopy:
    """
    Fill a new directory, marked as unfinished from its first moment.

    NotAllowed where the directory holds anything but an unfinished copy; SpoolLocked while somebody
    makes one there.
    """
    directory = options.directory
    unfinished.check_free(directory)
    lock = lock_directory(directory)
    try:
        await asyncio.to_thread(unfinished.begin, directory)
        try:
            for name, file in FILES.items():
                await (await Database.open(directory / file, PREPARE[name])).close()
            await asyncio.to_thread(_fill, options, opened, progress)
        except Exception:
            await asyncio.to_thread(unfinished.discard, directory)
            raise
    finally:
        lock.release()
    return MadeCopy(
        finish=partial(asyncio.to_thread, unfinished.finish, directory),
        discard=partial(asyncio.to_thread, unfinished.discard, directory),
    )


def _fill(options: StorageOptions, opened: OpenTables, progress: Progress) -> None:
    directory = options.directory
    with opened() as tables:
        _tell_settings(tables.table("facts"), options.settings)
        installation.make_secret(directory / installation.FILE, tables.secret)
        known = {NEWEST_NUMBERS}
        for name, file in FILES.items():
            path = directory / file
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = OFF")  # it is flushed as a whole before it counts
                known |= _fill_file(connection, name, tables, progress)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            flush_file(path)
        check_known(tables, known)
        _keep_contents(directory / DIRECTORY, tables.contents(), progress)


def _tell_settings(facts: KeptTable, settings: SpoolSettings) -> None:
    """Files keep no settings: those of the configuration count from now on."""
    for fact in facts.rows:
        told = dict(zip(facts.columns, fact, strict=True))
        if told["name"] == SETTINGS:
            for name, value in json.loads(told["value"]).items():
                if value != getattr(settings, name):
                    _log.warning(
                        "spool.%s was %s in the storage that is copied; %s in the configuration counts now",
                        name,
                        value,
                        getattr(settings, name),
                        extra={"action": "setting_differs", "setting": name},
                    )


def _fill_file(connection: sqlite3.Connection, file: str, tables: KeptTables, progress: Progress) -> set[str]:
    """Returns the names of what was filled from, or would have been."""
    made = dict(connection.execute(TABLES).fetchall())
    for name in sorted(made.keys() - COUNTED):
        if kept_name(file, name) in tables.names:
            _fill_table(connection, file, name, tables, progress)
    if "sizes" in made:
        connection.execute(RECOUNT_ENTRIES)
    numbered = {kept_name(file, name): name for name, sql in made.items() if "AUTOINCREMENT" in sql}
    for kept, number in newest_numbers(tables).items():
        if kept in numbered:
            connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (numbered[kept],))
            connection.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (numbered[kept], number)
            )
    return {kept_name(file, name) for name in made}


def _fill_table(
    connection: sqlite3.Connection, file: str, name: str, tables: KeptTables, progress: Progress
) -> None:
    kept = kept_name(file, name)
    source = tables.table(kept)
    kinds = dict(connection.execute("SELECT name, type FROM pragma_table_info(?)", (name,)).fetchall())
    taken = [(place, kinds[column]) for place, column in enumerate(source.columns) if column in kinds]
    rows = source.rows if kept != "facts" else (row for row in source.rows if SETTINGS not in row)
    columns = ", ".join(f'"{source.columns[place]}"' for place, _ in taken)
    verb = "INSERT OR REPLACE" if name in _BEGUN else "INSERT"
    statement = f'{verb} INTO "{name}" ({columns}) VALUES ({", ".join("?" * len(taken))})'
    done = 0
    progress(kept, done)
    for part in parts(rows):
        _write(connection, statement, ([_value(row[place], kind) for place, kind in taken] for row in part))
        done += len(part)
        progress(kept, done)


def _value(value: object, kind: str) -> object:
    """Decode bytes for a text column: some texts are bytes in another engine."""
    return value.decode() if kind == "TEXT" and isinstance(value, bytes) else value


def _write(connection: sqlite3.Connection, statement: str, rows: Iterable[Sequence[object]]) -> None:
    """Write rows in their own transaction, so that no log grows to the size of all."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(statement, rows)
    connection.execute("COMMIT")


def _keep_contents(directory: Path, contents: Iterable[KeptContent], progress: Progress) -> None:
    for done, content in enumerate(contents, start=1):
        if not _ID.fullmatch(content.id):
            raise SpoolDamaged(f"{content.id!r} is not an id of a container file")
        make_directory(directory, 0o700)
        with new_file(directory / content.id) as file:
            file.write(content.head)
            file.writelines(content.pieces)
        progress("container files", done)
    if directory.exists():
        flush_directory(directory)
