"""Files of facts survive kills, damage is found, and the engine opens nothing else."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from spool.errors import LedgerLost
from spool.ledger.dimensions import TOTAL
from spool.ledger.files import writer as writing_module
from spool.ledger.files.engine import open_engine
from spool.ledger.files.folder import DELTA, MANIFEST, PART, SPAN, FactFolder
from spool.ledger.files.layout import MAX_TAG_COLUMNS
from spool.ledger.files.source import sql_of_current_rows
from spool.ledger.files.writer import FactWriter
from spool.ledger.queries import CostQuery
from spool.record import NS
from tests.rounds import IS_LONG, examples, part, reduced
from tests.spool.ledger.files.histories import DAY
from tests.spool.ledger.files.writing import HASHER, log_of, open_writer, write_all
from tests.spool.ledger_log import BEGIN, FakeLog, call
from tests.waiting import wait_until

KILLS = 500 if IS_LONG else 2
ENTRIES = 60 if IS_LONG else 8
ALL = CostQuery(
    since=datetime.fromtimestamp(BEGIN - 90 * DAY, UTC),
    until=datetime.fromtimestamp(BEGIN + 500 * DAY, UTC),
    granularity=TOTAL,
)


def calls_of(writer: FactWriter) -> int:
    snapshot = writer.snapshot()
    try:
        return sum(row.calls for row in snapshot.costs(ALL))
    finally:
        snapshot.close()


def all_rows(folder: Path) -> list[dict[str, Any]]:
    """Return every known value of every row that the files of a folder have. The order of columns tells nothing."""
    files = FactFolder(folder).open().files
    engine = open_engine(folder)
    found = engine.execute(f"SELECT * FROM {sql_of_current_rows(folder.resolve(), files)} ORDER BY number")
    names = [column[0] for column in found.description or ()]
    rows = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in found.fetchall()
    ]
    engine.close()
    return rows


def small_log(days: int, calls: int = 3) -> FakeLog:
    log = FakeLog()
    for day in range(days):
        at = BEGIN + day * DAY
        log.add([call(start_time=int(at * NS) + n, tags={"zone": f"z{n}"}) for n in range(calls)], at=at)
    return log


@pytest.mark.proof
def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """Killed at random times and started again, it writes the rows of a writer that nobody killed."""
    seed, chance, kills = 20, random.Random(), 0
    undisturbed = open_writer(tmp_path / "undisturbed")
    write_all(undisturbed, log_of(seed, entries=ENTRIES), random.Random(1))
    undisturbed.close()
    want = all_rows(tmp_path / "undisturbed")
    rounds = 0
    while kills < KILLS:
        folder, rounds = tmp_path / f"killed-{rounds}", rounds + 1
        command = [
            sys.executable,
            "-m",
            "tests.spool.ledger.files.writing",
            str(seed),
            str(ENTRIES),
            str(folder),
        ]
        code = -signal.SIGKILL
        while code:
            code = code_of_killed(command, folder, chance.randrange(ENTRIES // 2) if kills < KILLS else None)
            kills += code != 0
        manifest = FactFolder(folder).open()
        assert all_rows(folder) == want
        assert (manifest.missed, manifest.damaged, manifest.absurd) == (
            0,
            *lacking_of(tmp_path / "undisturbed"),
        )
        assert {path.name for path in folder.glob("*.parquet")} == set(manifest.files)


def code_of_killed(command: Sequence[str], folder: Path, more: int | None) -> int:
    """
    Run a command, and kill it a moment after it has replaced the manifest `more` times; never if that is None.
    Return 0 if it ended before that.
    """
    with subprocess.Popen(command) as process:
        try:
            if more is not None:
                seen = set[tuple[int, int]]()

                def is_reached() -> bool:
                    with suppress(FileNotFoundError):
                        found = (folder / MANIFEST).stat()
                        seen.add((found.st_ino, found.st_mtime_ns))
                    return len(seen) > more or process.poll() is not None

                wait_until(is_reached, "the next manifest")
                time.sleep(random.random() * 0.02)
                process.send_signal(signal.SIGKILL)
            code = process.wait(600)
        finally:
            process.kill()
    assert code in (0, -signal.SIGKILL)
    return code


def lacking_of(folder: Path) -> tuple[int, int]:
    manifest = FactFolder(folder).open()
    return manifest.damaged, manifest.absurd


def test_a_snapshot_stays_as_it_was(tmp_path: Path) -> None:
    """Parts, merges and late reports after it change no answer of it. Its files go when it is closed."""
    writer, log = open_writer(tmp_path), log_of(3, entries=reduced(12, by=2))
    half = len(log.entries) // 2
    for entry in log.entries[:half]:
        writer.add_entries([entry])
        if entry.first % 3 == 0:
            writer.write_parts()
    snapshot = writer.snapshot()
    before = snapshot.costs(ALL)
    for entry in log.entries[half:]:
        writer.add_entries([entry])
        assert snapshot.costs(ALL) == before
        writer.write_parts()
        while writer.merge_next(BEGIN + 100 * DAY):
            assert snapshot.costs(ALL) == before
    assert calls_of(writer) > before[0].calls
    snapshot.close()
    assert {path.name for path in tmp_path.glob("*.parquet")} == set(writer.manifest.files)
    writer.close()


def test_a_merge_with_other_sums_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier files count on, and the new one is gone."""
    writer = open_writer(tmp_path)
    for entry in small_log(1, calls=10).entries:
        for piece in entry.split(5):
            writer.add_entries([piece])
            writer.write_parts()

    def doubled(*arguments: Any) -> str:
        rows = sql_of_current_rows(*arguments)
        return f"(SELECT * FROM {rows} UNION ALL SELECT * FROM {rows} WHERE number = 2)"

    before = writer.manifest
    monkeypatch.setattr(writing_module, "sql_of_current_rows", doubled)
    with pytest.raises(LedgerLost, match="has other sums"):
        writer.merge_next(BEGIN + 9 * DAY)
    monkeypatch.undo()
    assert writer.manifest == FactFolder(tmp_path).open() == before
    assert calls_of(writer) == 10
    writer.close()


@pytest.mark.parametrize("damage", ["cut", "missing", "flipped", "manifest", "other build"])
def test_damage_is_found(damage: str, tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.add_entries(small_log(2).entries)
    writer.write_parts()
    writer.close()
    folder = FactFolder(tmp_path)
    path = tmp_path / next(iter(folder.open().files))
    manifest = tmp_path / "manifest.json"
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "missing":
        path.unlink()
    elif damage == "flipped":
        place = random.randrange(len(data))
        path.write_bytes(bytes([*data[:place], data[place] ^ 4, *data[place + 1 :]]))
    elif damage == "manifest":
        manifest.write_bytes(manifest.read_bytes()[:-5])
    else:
        manifest.write_text(manifest.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(LedgerLost):
        folder.fetch(folder.open().files)


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [100, 3000, 6000])
def test_a_full_disk_loses_nothing(size: int, tmp_path: Path) -> None:
    """A write that fails leaves the totals as they were, and the next one writes everything."""
    log = small_log(3)
    writer = open_writer(tmp_path)
    writer.add_entries(log.entries)
    with full_disk(size), suppress(LedgerLost, OSError):
        writer.write_parts()
    assert calls_of(writer) == 9
    writer.close()
    writer = open_writer(tmp_path)
    writer.add_entries([entry for entry in log.entries if entry.first >= writer.next_number])
    assert calls_of(writer) == 9
    writer.close()


def test_the_engine_opens_nothing_else(tmp_path: Path) -> None:
    """Not above its folder, by no link in a name, and no extension. Its limits cannot be changed."""
    outside = tmp_path / "outside.csv"
    outside.write_text("a\n1\n")
    engine = open_engine(tmp_path / "facts")
    for statement in (
        f"SELECT * FROM read_csv('{outside}')",
        f"SELECT * FROM read_csv('{tmp_path}/facts/../outside.csv')",
        f"COPY (SELECT 1) TO '{tmp_path}/new.csv'",
        f"ATTACH '{tmp_path}/other.db'",
        "INSTALL httpfs",
        "SET memory_limit = '8GB'",
        "SET enable_external_access = true",
    ):
        with pytest.raises(duckdb.Error):
            engine.execute(statement)
    engine.close()


def test_every_tag_has_a_column_up_to_a_limit(tmp_path: Path) -> None:
    """Listed tags have theirs, whatever came before."""
    log = FakeLog()
    log.add([call(tags={f"tag-{n}": "x" for n in range(32)})])
    log.add([call(tags={f"more-{n}": "x" for n in range(32)})])
    log.add([call(tags={"service": "s", "Service": "S", "zone": "z"})])
    writer = open_writer(tmp_path)
    for entry in log.entries:
        writer.add_entries([entry])
        writer.write_parts()
    tags = writer.manifest.tags
    assert len(tags) < MAX_TAG_COLUMNS
    snapshot = writer.snapshot()
    for name, count in (("service", 1), ("Service", 1), ("tag-31", 1), (tags[-4], 1), ("more-31", 0)):
        query = CostQuery(since=ALL.since, until=ALL.until, granularity=TOTAL, group_by=[f"tag:{name}"])
        assert sum(row.calls for row in snapshot.costs(query) if row.group != (None,)) == count, name
    snapshot.close()
    writer.close()


def test_rows_of_many_days_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old records of hundreds of days make no file of a few rows for each day and part."""
    monkeypatch.setattr(writing_module, "PART_ROWS", 20)
    monkeypatch.setattr(writing_module, "MAX_OPEN_ROWS", 100)
    monkeypatch.setattr(writing_module, "LEAST_ROWS_OF_A_DAY", 10)
    writer = open_writer(tmp_path)
    of_days = [entry.records[0] for entry in small_log(30, calls=1).entries]
    log, due = FakeLog(), []
    for _ in range(4):
        log.add(of_days, at=BEGIN + 30 * DAY)
    for entry in log.entries:
        writer.add_entries([entry])
        due.append(writer.is_part_due())
    assert due == [False, False, False, True]
    writer.close()


def test_days_of_a_month_become_one_file_and_late_reports_are_merged(tmp_path: Path) -> None:
    writer, chance = open_writer(tmp_path), random.Random(5)
    log = log_of(5, entries=reduced(12, by=2))
    write_all(writer, log, chance)
    kinds = {file.kind for file in writer.manifest.files.values()}
    assert SPAN in kinds and not kinds & {PART, DELTA}
    assert len(writer.manifest.files) <= 3  # months
    writer.close()


@pytest.mark.parametrize("seed", part(range(examples(30) // 3 + 1), every=3))
def test_the_sums_of_a_manifest_are_those_of_its_rows(seed: int, tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    chance = random.Random(seed)
    for entry in log_of(seed, entries=reduced(12, by=2)).entries:
        writer.add_entries([entry])
        if chance.random() < 0.5:
            writer.write_parts()
        if chance.random() < 0.3:
            writer.merge_next(BEGIN + 100 * DAY)
    writer.write_parts()
    files = writer.manifest.files.values()
    assert calls_of(writer) == sum(file.sums.calls for file in files)
    assert len(all_rows(tmp_path)) == sum(file.sums.rows for file in files)
    writer.close()


def test_another_hasher_is_not_needed_for_the_same_digests(tmp_path: Path) -> None:
    """Digests of sessions are those of the queries."""
    log = FakeLog()
    log.add([call(session="s1"), call(session="s2"), call()])
    writer = open_writer(tmp_path)
    writer.add_entries(log.entries)
    query = CostQuery(
        since=ALL.since,
        until=ALL.until,
        granularity=TOTAL,
        include={"session": (HASHER.digest_of_id("session", "s1"),)},
    )
    snapshot = writer.snapshot()
    assert [row.calls for row in snapshot.costs(query)] == [1]
    snapshot.close()
    writer.close()
