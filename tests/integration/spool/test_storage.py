"""All files of a data directory open and close together, and damage to one does not affect the others."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from spool.clock import SystemClock
from spool.engines import import_damaged_file, open_storage
from spool.errors import OtherSchema, SpoolLocked
from spool.registry.operators import Actor
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from spool.sqlite.migrations import application_id, read_migration_statements, version_numbers
from spool.sqlite.storage import ENGINE
from spool.storage import StorageOptions
from tests.rounds import part


def options(directory: Path) -> StorageOptions:
    return StorageOptions(directory=directory, settings=SpoolSettings(), clock=SystemClock())


async def test_one_process_has_it_until_it_is_closed(tmp_path: Path) -> None:
    """A second process is refused. After the close, all stored data are there."""
    storage = await open_storage(options(tmp_path))
    with pytest.raises(SpoolLocked):
        await open_storage(options(tmp_path))
    assert storage.registry is not None
    await storage.registry.keys.create(name="search", scopes=[INGEST], actor=Actor("ada", "local"))
    await storage.close()
    again = await open_storage(options(tmp_path))
    assert again.registry is not None
    assert ["search"] == [key.name for key in again.registry.keys.all()]
    assert storage.secret == again.secret
    assert storage.incarnation == again.incarnation
    await again.close()


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("file", part(["spool.sqlite", "registry.sqlite", "ledger.sqlite"], every=2))
@pytest.mark.parametrize("ended", part(["closed", "killed"], every=2))
@pytest.mark.parametrize("build", ["newer", "other tables", "before the first release", "of 16 versions"])
async def test_what_another_build_wrote_is_not_touched(
    tmp_path: Path, file: str, ended: str, build: str
) -> None:
    """
    Another build changed one of the files, in the file or in its WAL. The start is refused before any byte
    changes or a file is created.
    """
    own = version_numbers(read_migration_statements(file))[-1]
    number, message = {
        "newer": (own + (1 << 24), "a newer Tollhouse"),
        "other tables": (own ^ 1, "another build of Tollhouse"),
        "before the first release": (1, "another build of Tollhouse"),
        "of 16 versions": (16, "another build of Tollhouse"),
    }[build]
    await (await open_storage(options(tmp_path))).close()
    shutil.copytree(tmp_path, left := tmp_path / "left")
    with closing(sqlite3.connect(left / file, isolation_level=None)) as newer:
        newer.execute("PRAGMA journal_mode = WAL")
        numbered = f"PRAGMA user_version = {number}; PRAGMA application_id = {application_id(number)}"
        newer.executescript(f"BEGIN; {numbered}; COMMIT")
        if ended == "killed":
            shutil.copytree(left, left := tmp_path / "killed", ignore=shutil.ignore_patterns("*-shm"))
            assert (left / f"{file}-wal").stat().st_size
    before = contents(left)
    assert ENGINE.tables is not None
    for _ in range(2):
        with pytest.raises(OtherSchema, match=message):
            await open_storage(options(left))
        with pytest.raises(OtherSchema, match=message):
            await import_damaged_file(options(left), tmp_path / "spool.sqlite")
        with pytest.raises(OtherSchema, match=message):
            await ENGINE.tables(options(left))
    assert before == contents(left)


async def test_log_and_totals_open_despite_a_damaged_registry(tmp_path: Path) -> None:
    """
    If the registry is damaged, the log and the totals still open, the registry is None, and the problem names the
    file.
    """
    await (await open_storage(options(tmp_path))).close()
    for path in tmp_path.glob("registry.sqlite*"):
        path.write_bytes(b"not a database" * 1000)
    storage = await open_storage(options(tmp_path))
    assert storage.registry is None
    assert "registry.sqlite is damaged" in storage.registry_problem
    assert 0 == (await storage.ledger.state()).rows
    await storage.close()


async def test_what_fails_to_open_leaves_nothing_open(tmp_path: Path) -> None:
    """If the totals cannot be opened, nothing stays open: the data directory is free again."""
    (tmp_path / "ledger.sqlite").mkdir()
    with pytest.raises(OSError, match=r"ledger\.sqlite"):
        await open_storage(options(tmp_path))
    (tmp_path / "ledger.sqlite").rmdir()
    await (await open_storage(options(tmp_path))).close()


@pytest.mark.parametrize("left", ["gone", "empty"])
async def test_missing_registry_counts_as_damaged(tmp_path: Path, left: str) -> None:
    """
    A registry whose file was deleted counts as damaged, because valid keys must not be refused as wrong. A new
    registry is created only on request.
    """
    first = await open_storage(options(tmp_path))
    assert first.registry is not None
    await first.registry.keys.create(name="search", scopes=[INGEST], actor=Actor("ada", "local"))
    await first.close()
    for path in tmp_path.glob("registry.sqlite*"):
        path.unlink()
    if left == "empty":
        (tmp_path / "registry.sqlite").touch()
    for _ in range(2):
        storage = await open_storage(options(tmp_path))
        assert storage.registry is None
        assert "registry.sqlite is missing" in storage.registry_problem
        await storage.close()
    again = await open_storage(replace(options(tmp_path), new_registry=True))
    assert again.registry is not None
    assert [] == again.registry.keys.all()
    await again.close()
    last = await open_storage(options(tmp_path))
    assert "" == last.registry_problem
    await last.close()


async def test_a_row_of_a_key_that_nobody_wrote_is_damage(tmp_path: Path) -> None:
    """
    If one bit flips in the JSON text of a key's row, the registry counts as damaged and is None. Everything else
    opens.
    """
    first = await open_storage(options(tmp_path))
    assert first.registry is not None
    await first.registry.keys.create(name="search", scopes=[INGEST], actor=Actor("ada", "local"))
    await first.close()
    with sqlite3.connect(tmp_path / "registry.sqlite") as connection:
        connection.execute("UPDATE keys SET scopes = '{['")
    connection.close()
    storage = await open_storage(options(tmp_path))
    assert storage.registry is None
    assert "registry.sqlite is damaged" in storage.registry_problem
    await storage.close()


@pytest.mark.parametrize("at", [18, 19, 47, 59])
async def test_a_damaged_header_is_damage_in_every_file(tmp_path: Path, at: int) -> None:
    """
    A damaged header counts as damage in every file. Otherwise SQLite would treat the file as read-only or as text
    in another encoding.
    """
    await (await open_storage(options(tmp_path))).close()
    for name in ("spool.sqlite", "registry.sqlite", "ledger.sqlite"):
        file = tmp_path / name
        data = bytearray(file.read_bytes())
        data[at] ^= 4
        file.write_bytes(data)
    storage = await open_storage(options(tmp_path))
    assert "registry.sqlite is damaged" in storage.registry_problem
    assert ["ledger.sqlite", "spool.sqlite"] == sorted(
        path.name.partition(".damaged")[0] for path in tmp_path.glob("*.damaged-*[0-9]")
    )
    await storage.close()
