"""
Full disks, failing commits and damaged bytes: only stored records are acknowledged, and the log always starts.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from spool.clock import Clock
from spool.deliveries.values import RouteSpec
from spool.errors import SpoolDamaged, SpoolFull, SpoolUnavailable
from spool.log.partial_reports import PartialReport
from spool.record import AI_TELEMETRY
from spool.sqlite import recovery
from spool.sqlite.database import Database
from spool.sqlite.reserve import DiskReserve
from spool.sqlite.spool import SqliteSpool
from tests.integration.spool.conftest import Starter
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import (
    NOON,
    add,
    assert_books_balance,
    call,
    entries,
    everything,
    point,
    topic_terms,
)
from tests.spool.contract.log.test_retention import wide
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("usual_reserve")


@asynccontextmanager
async def failing_commits(spool: SqliteSpool) -> AsyncIterator[None]:
    """Let every commit fail after its entries were written, including test commits."""
    for table in ("commits", "facts"):
        raising = "BEGIN SELECT RAISE(ABORT, 'injected fault'); END"
        await command(spool, f"CREATE TRIGGER {table}_fault BEFORE INSERT ON {table} {raising}")
    yield
    for table in ("commits", "facts"):
        await command(spool, f"DROP TRIGGER {table}_fault")


@asynccontextmanager
async def full_disk(spool: SqliteSpool, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Keep the file from growing and report that the disk has no free space."""
    await command(spool, "PRAGMA max_page_count = 200")
    with monkeypatch.context() as patch:
        patch.setattr(
            "spool.sqlite.reserve.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0)
        )
        yield
        # Raise the limit before the patches are undone, because the log checks for space every second.
        await command(spool, "PRAGMA max_page_count = 1000000")


async def fill(spool: SqliteSpool) -> int:
    """Append until the disk is full; return the number of stored records."""
    for number in range(10_000):
        try:
            await add(spool.log, wide(number))
        except SpoolFull as full:
            assert full.retry_after_s >= 1
            return number
    raise AssertionError("the disk never was full")


async def command(spool: SqliteSpool, sql: str) -> None:
    """Run a statement on the only writing connection."""
    await spool.database.run(lambda connection: connection.execute(sql).fetchall())


@contextmanager
def file_of(directory: Path) -> Iterator[sqlite3.Connection]:
    """Open the file of a closed queue."""
    connection = sqlite3.connect(directory / "spool.sqlite", isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def overwrite_leaf(directory: Path, table: str) -> None:
    """Overwrite a leaf page of the table with zeros."""
    with file_of(directory) as connection:
        leaves = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'"
        (page,) = connection.execute(leaves, (table,)).fetchone()
    file = directory / "spool.sqlite"
    data = bytearray(file.read_bytes())
    data[(page - 1) * 8192 : page * 8192] = bytes(8192)
    file.write_bytes(data)


async def test_a_commit_that_fails_half_way_changes_nothing(start: Starter) -> None:
    """
    A commit that fails half-way changes nothing: entries, counters, added reports, accounting and known ids stay as
    they were. A repeat is stored completely.
    """
    spool = await start(hold=10)
    await add(spool.log, call(1), points=[point(100, at=NOON + 60)])
    before = await spool.log.books(), (await spool.log.stats()).duplicate_ids
    fresh = [call(1, user="ada"), call(2)]
    async with failing_commits(spool):
        for _ in range(2):
            with pytest.raises(SpoolUnavailable, match="injected fault"):
                await add(spool.log, *fresh, points=[point(130, at=NOON + 120)])
        stats = await spool.log.stats()
        assert before == (await spool.log.books(), stats.duplicate_ids)
        assert stats.writable is False
        assert "injected fault" in str(stats.last_error)

    await add(spool.log, *fresh, points=[point(130, at=NOON + 120)])

    terms = await topic_terms(spool.log)
    assert terms["accepted"] == 4
    assert terms["duplicates"] == 1
    assert terms["amended"] == 1
    assert (await spool.log.stats()).writable
    await assert_books_balance(spool.log)


async def test_known_ids_that_cannot_be_folded_refuse_and_heal(start: Starter) -> None:
    """
    Known ids are folded before a commit. If this write fails, the sender gets a retry time and the health
    status shows the failure. Later it succeeds.
    """
    spool = await start(duplicate_ids=40)  # with this limit, ten ids make a batch
    for number in range(20):
        await add(spool.log, call(number))
    async with failing_commits(spool):  # folding stores its progress, so it fails as well
        for _ in range(2):
            with pytest.raises(SpoolUnavailable, match="injected fault"):
                await add(spool.log, call(20))
        assert "injected fault" in str((await spool.log.stats()).last_error)

    await add(spool.log, call(19), call(20))
    assert [call(number)[0] for number in range(21)] == await everything(spool.log)
    await assert_books_balance(spool.log)


async def test_a_note_that_cannot_be_written_stops_nothing(
    start: Starter, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The note next to a data file only helps to salvage the file if it is damaged. If the note cannot be written,
    retention and the last commit of a stop still succeed.
    """
    spool = await start(retention=60, late_window=0)
    await add(spool.log, call(1))
    clock.move(61)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spool.sqlite.log.recovery_notes.write_note", full)
    assert 1 == await spool.log.run_retention()
    await spool.close()


async def test_a_log_that_cannot_commit_heals_by_itself(start: Starter) -> None:
    """
    If a log cannot commit, it is not ready. It becomes ready without any request, as soon as a
    test commit succeeds.
    """
    spool = await start()
    async with failing_commits(spool):
        with pytest.raises(SpoolUnavailable):
            await add(spool.log, call(1))
        assert not (await spool.log.stats()).writable

    async def is_writable() -> bool:
        return (await spool.log.stats()).writable

    await until(is_writable)


async def test_a_read_that_fails_has_no_result(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed read raises the error of the storage. It never returns as if nothing were stored."""

    async def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    log = (await start()).log
    await add(log, call(1))
    with monkeypatch.context() as patch:
        for verb in ("transaction", "read", "snapshot", "run"):
            patch.setattr(Database, verb, fail)
        for read in (
            lambda: log.read(AI_TELEMETRY, 1, 1),
            log.unrecognised_items,
            log.event_types,
            log.list_conflicts,
            log.books,
            log.verify,
            log.stats,
        ):
            with pytest.raises(SpoolUnavailable, match="disk I/O error"):
                await read()


async def test_full_disk_refuses_records_until_space_is_free(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    New records are refused, while reading and delivering continue. With free space the log accepts records
    again without a restart.
    """
    spool = await start()
    await spool.deliveries.set_routes([RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)])
    reserve = spool.directory / "reserve"
    assert reserve.stat().st_size == 32 << 20
    async with full_disk(spool, monkeypatch):
        kept = await fill(spool)
        assert not reserve.exists()
        assert (await spool.log.stats()).writable is False
        assert (await spool.log.stats()).last_error == "the disk is full"
        assert kept == len(await everything(spool.log))
        assert (
            await spool.deliveries.take_due_delivery("upstream/ai-telemetry", now=NOON, max_records=5)
            is not None
        )

    await add(spool.log, wide(kept))

    assert kept + 1 == len(await everything(spool.log))
    assert reserve.stat().st_size == 32 << 20
    await assert_books_balance(spool.log)


async def test_on_a_full_disk_what_nobody_needs_makes_room(
    start: Starter, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Entries that no reader needs are deleted before their retention ends, the file shrinks, and the log
    accepts records again.
    """
    spool = await start()
    file = spool.directory / "spool.sqlite"
    empty = file.stat().st_size
    for number in range(100):
        await add(spool.log, wide(number))
    async with full_disk(spool, monkeypatch):
        with pytest.raises(SpoolFull):
            for number in range(100, 10_000):
                await add(spool.log, wide(number))

        async def has_expired() -> int:
            clock.move(2)
            await asyncio.sleep(0.05)
            return (await topic_terms(spool.log)).get("expired", 0)

        await until(has_expired)
        await until(lambda: file.stat().st_size <= empty + 8 * 8192, "the file shrinks")

    await add(spool.log, wide(10_001))
    await assert_books_balance(spool.log)


async def test_a_start_on_a_full_disk_reads(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without space for the reserve, the log refuses records with the reason, and all stored records can be read.
    """
    first = await start()
    await add(first.log, call(1))
    await first.close()
    (first.directory / "reserve").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(DiskReserve, "reallocate_if_possible", lambda self: False)
        spool = await start()
        assert [call(1)[0]] == await everything(spool.log)
        with pytest.raises(SpoolFull):
            await add(spool.log, call(2))
        stats = await spool.log.stats()
        assert stats.writable is False
        assert stats.last_error == "the disk is full"
    await add(spool.log, call(2))


async def test_a_start_on_a_full_disk_has_room_for_what_sqlite_needs(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The reserve is deleted before the file is opened, because even reading needs space for SQLite's index file.
    """
    first = await start()
    await add(first.log, call(1))
    await first.close()
    reserve = first.directory / "reserve"
    there = []
    open_database = recovery.open_database

    async def opened(path: Path, clock: Clock) -> Database:
        there.append(reserve.exists())
        return await open_database(path, clock)

    monkeypatch.setattr(recovery, "open_database", opened)
    monkeypatch.setattr(
        "spool.sqlite.reserve.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0)
    )
    spool = await start()

    assert [False] == there
    assert [call(1)[0]] == await everything(spool.log)
    with pytest.raises(SpoolFull):
        await add(spool.log, call(2))


@pytest.mark.parametrize(
    "code", part([errno.EMFILE, errno.EROFS, errno.EIO], every=3), ids=errno.errorcode.get
)
@pytest.mark.parametrize("step", ["reallocate_if_possible", "release"])
async def test_a_reserve_that_cannot_be_reached_is_a_refusal(
    start: Starter, monkeypatch: pytest.MonkeyPatch, code: int, step: str
) -> None:
    """
    On a full disk, the reserve fails with no free descriptor, a read-only mount or a broken device. Senders
    are refused with a time to retry, and the log recovers.
    """
    spool = await start()
    await add(spool.log, call(1))

    def fail(_: DiskReserve) -> bool:
        raise OSError(code, os.strerror(code))

    async with full_disk(spool, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(DiskReserve, step, fail)
            for number in range(400):
                with suppress(SpoolFull, SpoolUnavailable):  # no other error may occur
                    await add(spool.log, wide(number))

    async def is_writable() -> bool:
        return (await spool.log.stats()).writable

    await until(is_writable)
    await add(spool.log, call(2))
    await assert_books_balance(spool.log)


async def test_a_start_whose_reserve_cannot_be_reached_is_a_start(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the reserve file cannot be reached at a start, the log still starts: it reads, refuses records, and accepts
    them once the directory is writable.
    """
    first = await start()
    await add(first.log, call(1))
    await first.close()

    def fail(_: DiskReserve) -> bool:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(DiskReserve, "reallocate_if_possible", fail)
        spool = await start()
        assert [call(1)[0]] == await everything(spool.log)
        assert not (await spool.log.stats()).writable
    await add(spool.log, call(2))


# -- damage --------------------------------------------------------------------------------------------------


async def test_a_damaged_entry_is_set_aside(start: Starter, caplog: pytest.LogCaptureFixture) -> None:
    """
    One flipped bit loses only the records of its entry. Their numbers stay, and they are counted and logged once.
    """
    first = await start()
    await add(first.log, call(1))
    await add(first.log, call(2), call(3))
    await add(first.log, call(4))
    await first.close()
    with file_of(first.directory) as file:
        (body,) = file.execute("SELECT body FROM entries WHERE first = 2").fetchone()
        flipped = bytes([body[0] ^ 0, *body[1:-1], body[-1] ^ 4])
        file.execute("UPDATE entries SET body = ? WHERE first = 2", (flipped,))

    spool = await start()

    for _ in range(2):
        assert [call(1)[0], None, None, call(4)[0]] == await everything(spool.log)
    assert [1, 2, 4] == [entry.first for entry in await entries(spool.log)]
    assert 2 == (await topic_terms(spool.log))["damaged"]
    assert [] == list((await spool.log.verify()).imbalances)
    assert 2 == (await topic_terms(spool.log))["damaged"]
    await add(spool.log, call(5))
    assert "damaged" in caplog.text


@pytest.mark.parametrize(
    "damage",
    part(
        [
            "UPDATE entries SET first = 100 WHERE first = 2",
            "UPDATE entries SET version = 9 WHERE first = 2",
            "UPDATE entries SET body = x'' WHERE first = 2",
            "DELETE FROM entries WHERE first = 2",
            "UPDATE commits SET terms = x'80' WHERE id = 2",
            "UPDATE books SET n = n + 1 WHERE term = 'duplicates'",
            "UPDATE books SET n = n - 1 WHERE term = 'accepted'",
        ],
        every=2,
    ),
)
async def test_a_recount_notices(start: Starter, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    """
    For each change behind the log's back, either the start repairs it, or the recount reports it or
    sets it aside.
    """
    first = await start()
    for number in range(1, 5):
        await add(first.log, call(number), call(number))
    await first.close()
    with file_of(first.directory) as file:
        file.execute(damage)

    spool = await start()
    books = await spool.log.verify()

    noticed = list(books.imbalances) or (await topic_terms(spool.log)).get("damaged")
    assert noticed or "spool_salvaged" in {getattr(record, "action", "") for record in caplog.records}
    await add(spool.log, call(9))


async def test_a_damaged_amendment_leaves_the_record(
    start: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    """If an added report is damaged, the record keeps its first values, and the damage is logged."""
    first = await start(hold=10)
    await add(first.log, call(1))
    await add(first.log, call(1, user="ada"))
    await first.close()
    with file_of(first.directory) as file:
        file.execute("UPDATE amendments SET fields = x'81A475736572A3626F62'")

    assert [call(1)[0]] == await everything((await start()).log)
    assert "added report is damaged" in caplog.text


async def test_damaged_ids_shorten_the_memory_only(start: Starter, caplog: pytest.LogCaptureFixture) -> None:
    """
    A damaged run of ids is left out and logged, and nothing else is lost. New ids become runs as before.
    """
    first = await start(duplicate_ids=4)  # the newest id is not in a run when the spool stops
    await add(first.log, call(1))
    await add(first.log, call(2))
    await first.close()
    with file_of(first.directory) as file:
        assert 1 == file.execute("UPDATE id_runs SET ids = x'0000000000000000'").rowcount

    spool = await start(duplicate_ids=4)

    assert "run of known ids is damaged" in caplog.text
    await add(spool.log, call(1))
    await add(spool.log, call(2), call(3))
    await add(spool.log, call(3))
    assert 4 == len(await everything(spool.log))


async def test_a_file_that_cannot_be_opened_is_moved_aside(
    start: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If no page is readable, the file is renamed and a new one accepts records. The log states the number
    of lost records.
    """
    first = await start()
    await add(first.log, call(1), call(2))
    await first.close()
    file = first.directory / "spool.sqlite"
    file.write_bytes(b"not a database at all" * (file.stat().st_size // 21))

    with caplog.at_level(logging.ERROR):
        spool = await start()
    await add(spool.log, call(3))

    assert [call(3)[0]] == await everything(spool.log)
    assert [f"spool.sqlite.damaged-{NOON}"] == [
        path.name for path in spool.directory.glob("spool.sqlite.damaged-*")
    ]
    assert first.incarnation != spool.incarnation
    (said,) = [record for record in caplog.records if getattr(record, "action", "") == "spool_lost"]
    assert 2 == said.records  # type: ignore[attr-defined]


async def test_a_damaged_page_is_salvaged(start: Starter, caplog: pytest.LogCaptureFixture) -> None:
    """
    Readable entries of a damaged table are copied to a new file under the same numbers, and
    the accounting balances.
    """
    first = await start()
    await first.deliveries.set_routes([RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)])
    for number in range(60):
        await add(first.log, wide(number), call(number), ignored={"not_ai": 1})
    counted = (await first.log.books()).topics[AI_TELEMETRY]
    await first.close()
    overwrite_leaf(first.directory, "entries")
    (first.directory / "spool.damaged").touch()

    spool = await start()

    found = await everything(spool.log)
    assert 60 == len(found)
    assert 0 < found.count(None) < 60
    terms = await topic_terms(spool.log)
    assert found.count(None) == terms.pop("damaged")
    assert counted == terms
    assert ["upstream/ai-telemetry"] == [route.name for route in await spool.deliveries.route_states()]
    assert first.incarnation == spool.incarnation
    await add(spool.log, call(1000))
    await assert_books_balance(spool.log)


@pytest.mark.parametrize("table", part([*recovery.SMALL_TABLES], every=4))
async def test_damage_in_a_small_table_never_stops_a_start(start: Starter, table: str) -> None:
    """Small tables that a start reads first are salvaged like the records, and no record is lost."""
    first = await start()
    await add(first.log, call(1))
    await first.close()
    overwrite_leaf(first.directory, table)

    spool = await start()

    assert [call(1)[0]] == await everything(spool.log)
    await add(spool.log, call(2), keep=[PartialReport(b"half", 1.0, b"")], pending=1)
    assert 1 == len(await spool.partial_reports.load())


async def test_damage_among_waiting_halves_is_salvaged_at_the_start(start: Starter) -> None:
    """
    The pages of partial reports are checked like those of records. Readable partial reports keep waiting.
    """
    first = await start()
    halves = [PartialReport(number.to_bytes(16, "big"), float(number), bytes(400)) for number in range(100)]
    await add(first.log, call(1), keep=halves, pending=100, received=101)
    await first.close()
    overwrite_leaf(first.directory, "pending")

    spool = await start()

    waiting = set(await spool.partial_reports.load())
    assert waiting < set(halves)
    assert 60 < len(waiting)
    assert [call(1)[0]] == await everything(spool.log)
    await add(spool.log, call(2), keep=halves[:1], forget=[halves[1].key])
    assert (waiting | {halves[0]}) - {halves[1]} == set(await spool.partial_reports.load())


async def test_an_emptied_file_is_noticed(start: Starter, caplog: pytest.LogCaptureFixture) -> None:
    """An emptied file is not mistaken for a first start."""
    first = await start()
    await add(first.log, call(1), call(2))
    await first.close()
    (first.directory / "spool.sqlite").write_bytes(b"")

    await add((await start()).log, call(3))

    assert ["spool_lost"] == [
        getattr(record, "action", "") for record in caplog.records if record.levelname == "ERROR"
    ]


@pytest.mark.parametrize("seed", part(range(12), every=4))
async def test_damage_anywhere_never_stops_a_start(start: Starter, tmp_path: Path, seed: int) -> None:
    """
    Random pages are overwritten. The log starts, reads, and never returns a record that was not stored.

    Damage found while reading is noted, and the next start salvages the file.
    """
    first = await start()
    given = {}
    for number in range(30):
        record, known_as = wide(number)
        given[record.id] = record
        await add(first.log, (record, known_as))
    noise = random.Random(seed)
    name = noise.choice(["spool.sqlite", "spool.sqlite", "spool.sqlite-wal"])
    if name == "spool.sqlite":  # a normal stop moves the whole WAL into the file
        await first.close()
    directory = killed(first.directory, tmp_path / "damaged")
    file = directory / name
    data = bytearray(file.read_bytes())
    for _ in range(noise.choice([1, 4])):
        at = noise.randrange(0, max(1, len(data) - 4096))
        data[at : at + 4096] = noise.randbytes(4096)
    file.write_bytes(data)

    spool = await start(directory)
    try:
        await everything(spool.log)
    except SpoolDamaged:
        await spool.close()
        spool = await start(directory)

    for found in await everything(spool.log):
        assert found is None or given[found.id] == found
    assert isinstance((await spool.log.verify()).imbalances, list)
    before = len(await everything(spool.log))
    await add(spool.log, call(1000))
    assert before + 1 == len(await everything(spool.log))
