"""
A table that a later version adds is copied in every direction, without any line for it in the copying code.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spool.errors import NotAllowed
from spool.postgres.database import Connection, Database
from spool.postgres.migrations import migrate_schema
from spool.sqlite import transfer as into_files
from spool.sqlite.transfer import FILES
from tests.spool.transfer.places import Places
from tests.spool.transfer.test_archives import export_place, import_into_place

MADE_UP = {"": "made_up", "registry": "registered", "ledger": "summed"}  # name of the new table in each file
_OF_FILE = """
    CREATE TABLE {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, body BLOB, is_on INTEGER) STRICT"""
_OF_SCHEMA = """
    CREATE TABLE {{schema}}.{table} (
        shard smallint NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, name bytea NOT NULL, body bytea,
        is_on boolean, PRIMARY KEY (shard, id))"""
ROWS = [(1, "one \0 two", None, 1), (7, "ü", b"\xff\x00", None)]


def _later(prepare: Callable[[sqlite3.Connection], None], table: str) -> Callable[[sqlite3.Connection], None]:
    def prepare_later(connection: sqlite3.Connection) -> None:
        prepare(connection)
        connection.execute(_OF_FILE.format(table=table))

    return prepare_later


def change(directory: Path, file: str, *statements: tuple[str, Sequence[Sequence[Any]]]) -> None:
    with closing(sqlite3.connect(directory / FILES[file], isolation_level=None)) as connection:
        for statement, rows in statements:
            connection.executemany(statement, rows)


def kept(directory: Path, file: str) -> list[tuple[Any, ...]]:
    table = MADE_UP[file]
    with closing(sqlite3.connect(directory / FILES[file])) as connection:
        rows = connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
        [(newest,)] = connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)
        ).fetchall()
    return [*rows, (newest,)]


@pytest.fixture
def later_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make both engines create one more table in each of their parts."""
    for file, table in MADE_UP.items():
        monkeypatch.setitem(into_files.PREPARE, file, _later(into_files.PREPARE[file], table))

    async def migrate_later(database: Database, **options: Any) -> None:
        await migrate_schema(database, **options)
        names = (f"ledger_{table}" if file == "ledger" else table for file, table in MADE_UP.items())
        statements = [database.fill_in_table_names(_OF_SCHEMA.format(table=name)) for name in names]

        def make(connection: Connection) -> None:
            for statement in statements:
                connection.execute(statement)

        await database.transaction(make)

    monkeypatch.setattr("spool.postgres.transfer.taking_over.migrate_schema", migrate_later)


async def _filled(places: Places) -> Path:
    await (await places.open("files")).close()
    directory = places.options["files"].directory
    for file, table in MADE_UP.items():
        change(
            directory,
            file,
            (_OF_FILE.format(table=table), [()]),
            (f"INSERT INTO {table} VALUES (?, ?, ?, ?)", ROWS),
            ("UPDATE sqlite_sequence SET seq = 9 WHERE name = ?", [(table,)]),
        )
    return directory


async def test_a_new_table_is_copied(places: Places, later_release: None, tmp_path: Path) -> None:
    """Rows, types and newest numbers are copied into a schema, another schema, an archive and files."""
    directory = await _filled(places)
    assert [[*ROWS, (9,)]] * 3 == [kept(directory, file) for file in FILES]
    await places.copy("files", "postgres")
    await places.copy("postgres", "other postgres")
    archive = await export_place(places, "other postgres", tmp_path / "archive")
    await import_into_place(places, archive, "other files")
    other = places.options["other files"].directory
    assert [[*ROWS, (9,)]] * 3 == [kept(other, file) for file in FILES]


@pytest.mark.parametrize("target", ["other files", "postgres"])
async def test_unknown_table_with_rows_refuses_the_copy(places: Places, target: str) -> None:
    """
    If the source has an unknown table with rows, the copy is refused and the error names the table. An empty
    unknown table is ignored.
    """
    directory = await _filled(places)
    with pytest.raises(NotAllowed, match="made_up, a table that this Tollhouse does not know"):
        await places.copy("files", target)
    assert not places.options["other files"].directory.exists()
    for file, table in MADE_UP.items():
        change(directory, file, (f"DELETE FROM {table}", [()]))
    await places.copy("files", target)
