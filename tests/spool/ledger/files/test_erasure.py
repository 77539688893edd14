"""After an erasure, no file has the person's name, and each row is that of the renamed record."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

from spool.record import NS
from tests.rounds import examples, part
from tests.spool.ledger.files.changing import NAME, log_with_name, renamed, renaming_below
from tests.spool.ledger.files.histories import DAY
from tests.spool.ledger.files.test_files import all_rows
from tests.spool.ledger.files.writing import open_writer, write_all
from tests.spool.ledger_log import BEGIN, FakeLog, call


def texts_on_disk(folder: Path) -> str:
    """Return the bytes of every file, and the decompressed values and statistics of those with rows."""
    engine = duckdb.connect()
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            found.append(path.read_bytes().decode("latin-1"))
        if path.suffix == ".parquet":
            for source in (f"read_parquet('{path}')", f"parquet_metadata('{path}')"):
                found.append(repr(engine.execute(f"SELECT * FROM {source}").fetchall()))
    engine.close()
    return "".join(found)


@pytest.mark.parametrize("seed", part(range(examples(40)), every=6))
def test_no_file_has_the_name(seed: int, tmp_path: Path) -> None:
    """At any place between parts, merges, late reports and recalculations. Later calls keep the name."""
    chance, log = random.Random(seed), log_with_name(seed)
    erased_at = log.entries[chance.randint(1, 5)].first
    writer = open_writer(tmp_path / "erased")
    before, after = FakeLog(), FakeLog()
    before.entries = [entry for entry in log.entries if entry.first < erased_at]
    after.entries = renamed(log, erased_at).entries[len(before.entries) :]
    for entry in before.entries:
        writer.add_entries([entry])
        if chance.random() < 0.5:
            writer.write_parts()
        if chance.random() < 0.3:
            writer.merge_next(BEGIN + 100 * DAY)
    snapshot = writer.snapshot()
    had = NAME in texts_on_disk(tmp_path)
    changed = writer.rename_people(renaming_below(erased_at))
    since = writer.next_file
    assert changed or not had
    snapshot.close()  # keeps the earlier files until here
    assert NAME not in texts_on_disk(tmp_path)
    write_all(writer, after, chance)
    kept = sum(NAME in (row.get("user"), *row.values()) for row in all_rows(tmp_path / "erased"))
    assert writer.rename_people(renaming_below(erased_at), since) == 0
    assert writer.rename_people(renaming_below(erased_at)) == 0
    writer.close()
    other = open_writer(tmp_path / "renamed")
    write_all(other, renamed(log, erased_at), random.Random(1))
    other.close()
    want = all_rows(tmp_path / "renamed")
    assert [sorted(map(str, row.values())) for row in all_rows(tmp_path / "erased")] == [
        sorted(map(str, row.values())) for row in want
    ]
    assert kept == sum(NAME in row.values() for row in want)


def test_a_second_pass_reads_only_later_files(tmp_path: Path) -> None:
    """It finds a name that a report brought back, without a look at files that the first pass has read."""
    log = FakeLog()
    for day in range(3):
        log.add([call(start_time=int((BEGIN + day * DAY) * NS), user=NAME)], at=BEGIN + day * DAY)
    writer = open_writer(tmp_path / "facts")
    writer.add_entries(log.entries[:2])
    assert writer.rename_people(renaming_below(4)) == 2
    read, since = list(writer.manifest.files), writer.next_file
    writer.add_entries(log.entries[2:])
    for name in read:
        (tmp_path / "facts" / name).rename(tmp_path / name)
    assert writer.rename_people(renaming_below(4), since) == 1
    assert writer.rename_people(renaming_below(4), writer.next_file) == 0
    for name in read:
        (tmp_path / name).rename(tmp_path / "facts" / name)
    writer.close()
    assert len(all_rows(tmp_path / "facts")) == 3
    assert NAME not in texts_on_disk(tmp_path)
