"""
Each schema file belongs to a version of the schema. Statements in a file without a version would never run. The digest
of a schema follows from its files, and all tables are in the files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from importlib.resources import files
from itertools import chain
from pathlib import Path

import pytest

from spool.clock import SystemClock
from spool.engines import open_storage
from spool.postgres import migrations as postgres
from spool.postgres.migrations import VERSIONS as OF_POSTGRES
from spool.settings import SpoolSettings
from spool.sqlite import migrations as sqlite
from spool.sqlite.migrations import VERSIONS as OF_SQLITE
from spool.sqlite.migrations import read_migration_statements, version_numbers
from spool.storage import StorageOptions
from tests.rounds import some

LISTED = {
    "spool.postgres": [*chain.from_iterable(version.files for version in OF_POSTGRES)],
    "spool.sqlite": [name for versions in OF_SQLITE.values() for name in chain.from_iterable(versions)],
}


@pytest.mark.parametrize(("package", "listed"), LISTED.items())
def test_every_file_belongs_to_a_version(package: str, listed: Sequence[str]) -> None:
    assert sorted(file.name for file in files(package).joinpath("schema").iterdir()) == sorted(listed)


def digests(engine: str) -> list[object]:
    if engine == "spool.postgres":
        return [postgres.version_digests(OF_POSTGRES)]
    return [version_numbers(read_migration_statements.__wrapped__(file)) for file in OF_SQLITE]


FILES = [(engine, name) for engine, names in LISTED.items() for name in names]


@pytest.mark.parametrize(("engine", "changed"), FILES)
def test_a_change_of_any_file_changes_the_digest(
    engine: str, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line with a statement counts. Comments and white space do not."""
    module = postgres if engine == "spool.postgres" else sqlite
    script, own = module.read_script, digests(engine)
    lines = script(changed).splitlines()

    def change(text: Sequence[str]) -> list[object]:
        texts = {changed: "\n".join(text)}
        monkeypatch.setattr(module, "read_script", lambda name: texts.get(name) or script(name))
        return digests(engine)

    assert own == change([f"  {line}  -- a comment" for line in lines])
    for number, line in some([*enumerate(lines)], every=10):
        if line.partition("--")[0].strip():
            assert own != change([*lines[:number], f"x {line}", *lines[number + 1 :]])


async def test_all_tables_are_in_the_files(tmp_path: Path) -> None:
    """An opened storage has what the statements create, so its digest covers all of its schema."""
    options = StorageOptions(settings=SpoolSettings(), clock=SystemClock(), directory=tmp_path)
    await (await open_storage(options)).close()
    read = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    for file in OF_SQLITE:
        with (
            closing(sqlite3.connect(tmp_path / file)) as opened,
            closing(sqlite3.connect(":memory:")) as made,
        ):
            made.executescript(";\n".join(read_migration_statements(file)))
            assert made.execute(read).fetchall() == opened.execute(read).fetchall()
