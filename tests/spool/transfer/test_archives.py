"""A storage in one archive file: a restored copy is equal, and an incomplete file restores nothing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from spool.engines import load_engine
from spool.errors import AlreadyThere, NotAllowed, SpoolDamaged
from spool.transfer.archives import export_archive, import_archive, table_parts_with_progress
from spool.transfer.tables import BYTES_AT_ONCE, KeptTable, no_progress
from tests.spool.transfer.places import Places


async def export_place(places: Places, name: str, target: Path) -> Path:
    options = places.options[name]
    engine = load_engine(options.storage.engine)
    await export_archive(options, engine, target, version="1.2.3", made_at="2026-11-21T00:00:00Z")
    return target


async def import_into_place(places: Places, archive: Path, name: str) -> None:
    options = places.options[name]
    await import_archive(archive, options, load_engine(options.storage.engine))


async def test_there_and_back_in_a_file(places: Places, receipt: str, tmp_path: Path) -> None:
    """
    A copy is equal after it was made from files to a database and back to files, each time through an archive.
    """
    before = await places.said("files")
    first = await export_place(places, "files", tmp_path / "first.archive")
    assert 0o600 == first.stat().st_mode & 0o777
    with pytest.raises(AlreadyThere):
        await export_place(places, "files", first)
    await import_into_place(places, first, "postgres")
    assert before == await places.said("postgres")
    await import_into_place(
        places, await export_place(places, "postgres", tmp_path / "second.archive"), "other files"
    )
    assert before == await places.said("other files")
    with pytest.raises(NotAllowed, match="not empty"):
        await import_into_place(places, first, "other files")


async def test_a_damaged_file_makes_nothing(places: Places, receipt: str, tmp_path: Path) -> None:
    """A truncated file or an unrelated file creates nothing, because the whole file is checked first."""
    archive = await export_place(places, "files", tmp_path / "archive")
    whole = archive.read_bytes()
    with zipfile.ZipFile(archive) as opened:
        entries = opened.getinfo("tables/entries")
    place = entries.header_offset + 100
    for damaged in (
        whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :],
        whole[: len(whole) // 2],
        b"something else",
    ):
        archive.write_bytes(damaged)
        with pytest.raises((NotAllowed, SpoolDamaged), match="archive"):
            await import_into_place(places, archive, "other files")
        assert not places.options["other files"].directory.exists()


async def test_large_rows_are_in_frames_of_their_own() -> None:
    """
    Large rows are written in separate frames, because one entry has the records of many requests. Hundreds of
    entries in one frame would not fit into memory.
    """
    body = bytes(BYTES_AT_ONCE // 2)
    rows = [(number, body if number < 5 else b"") for number in range(1000)]
    columns, *parts = table_parts_with_progress(
        "entries", KeptTable(columns=("first", "body"), rows=iter(rows)), no_progress
    )
    assert ["first", "body"] == columns
    assert rows == [row for part in parts for row in part]
    assert 2 == max(sum(row[1] is body for row in part) for part in parts)
    assert [2, 2, 200] == [len(part) for part in parts][:3]
