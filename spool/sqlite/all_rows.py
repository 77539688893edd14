"""All rows of all tables of the files, for a search."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from spool.errors import SpoolUnavailable
from spool.sqlite.database import Database

Visit = Callable[[str, Sequence[object]], None]


async def visit_rows_of_files(directory: Path, visit: Visit) -> None:
    """Read the files over connections of their own, because commits and other readers must not wait."""
    try:
        await asyncio.to_thread(_visit_rows_of_directory, directory, visit)
    except sqlite3.Error as error:
        raise SpoolUnavailable(f"the data cannot be searched: {error}") from error


async def visit_rows_in_memory(database: Database, visit: Visit) -> None:
    await database.read(partial(_visit_rows, visit=visit))


def _visit_rows_of_directory(directory: Path, visit: Visit) -> None:
    for path in sorted(directory.absolute().glob("*.sqlite")):
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            _visit_rows(connection, visit)


def _visit_rows(connection: sqlite3.Connection, visit: Visit) -> None:
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for row in connection.execute(f'SELECT * FROM "{table}"'):
            visit(table, row)
