"""Versions of a schema are found by the names of files, and one text serves both engines."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from spool.postgres import migrations as of_postgres
from spool.postgres.database import Database
from spool.settings import POSTGRES, SQLITE
from spool.sql import versions
from spool.sqlite import migrations as of_sqlite
from tests.spool.postgres_cluster import Schema

NEXT_SQLITE, NEXT_POSTGRES = len(of_sqlite.spool_scripts()) + 1, of_postgres.VERSION + 1
MADE_UP = """
-- Made up.
CREATE TABLE {schema}.made_up (
    id   TEXT    PRIMARY KEY,
    n    INTEGER NOT NULL,
    at   REAL    NOT NULL,
    body BLOB    NOT NULL,
    is_on BOOLEAN
) STRICT, WITHOUT ROWID;
CREATE INDEX made_up_by_n ON {schema}.made_up (n);
"""


@pytest.fixture
def later_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A release with one file more."""
    for file in versions._FOLDER.iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    name = f"made_up.sqlite-{NEXT_SQLITE}.postgres-{NEXT_POSTGRES}.sql"
    (tmp_path / name).write_text(MADE_UP)
    monkeypatch.setattr(versions, "_FOLDER", tmp_path)
    of_sqlite.spool_scripts.cache_clear()
    yield
    of_sqlite.spool_scripts.cache_clear()


def test_a_file_makes_a_table_in_sqlite(later_release: None) -> None:
    """In a new file, and in one of the version before."""
    scripts = of_sqlite.spool_scripts()
    assert NEXT_SQLITE == len(scripts)
    for present in (0, NEXT_SQLITE - 1):
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            of_sqlite.migrate(connection, scripts[:present])
            of_sqlite.migrate(connection, scripts)
            found = dict(connection.execute("SELECT name, type FROM pragma_table_info('made_up')").fetchall())
        assert {"id": "TEXT", "n": "INTEGER", "at": "REAL", "body": "BLOB", "is_on": "INTEGER"} == found


@pytest.mark.asyncio
async def test_a_file_makes_a_table_in_postgres(later_release: None, unmade_schema: Schema) -> None:
    """With the kinds of that engine; texts compare byte by byte, as in the other one."""
    later = of_postgres.all_versions()
    assert NEXT_POSTGRES == len(later)
    database = Database(unmade_schema.dsn, schema=unmade_schema.name)
    try:
        await of_postgres.migrate(database)
        await of_postgres.migrate(database, later)
    finally:
        await database.close()
    columns = """
        SELECT column_name, data_type, collation_name FROM information_schema.columns
         WHERE table_schema = %s AND table_name = 'made_up'"""
    with psycopg.connect(unmade_schema.dsn) as connection:
        found = connection.execute(columns, (unmade_schema.name,)).fetchall()
    kinds = {"id": "text", "n": "bigint", "at": "double precision", "body": "bytea", "is_on": "boolean"}
    assert kinds == {name: kind for name, kind, _ in found}
    assert {"id": "C"} == {name: collation for name, _, collation in found if collation}


@pytest.mark.parametrize("engine", [SQLITE, POSTGRES])
def test_no_version_is_passed_over(engine: str) -> None:
    """A number that was passed over is a version of nothing: a file that takes it later is never carried out."""
    listed = {SQLITE: len(of_sqlite.SCRIPTS), POSTGRES: of_postgres.LISTED}[engine]
    assert all(versions.files_by_version(engine)[listed:])


def test_every_file_belongs_to_a_version() -> None:
    """Its name says to which, or nobody would carry it out."""
    files = {file.name for file in versions._FOLDER.iterdir()}
    carried_out = {
        name for engine in (SQLITE, POSTGRES) for names in versions.files_by_version(engine) for name in names
    }
    assert files == carried_out
