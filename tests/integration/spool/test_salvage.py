"""A damaged spool.sqlite: after the start, all readable data are there, and lost records are counted."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from spool.deliveries.values import RouteSpec, Settlement
from spool.errors import SpoolDamaged
from spool.record import AI_TELEMETRY
from spool.sqlite.damage import notes
from spool.sqlite.damage.write_ahead_log import read_frames
from spool.sqlite.database import PAGE
from spool.sqlite.spool import SqliteSpool
from tests.integration.spool.conftest import Starter
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import add, assert_books_balance, call, everything, submission, topic_terms

CALLS = 240
ROUTE = RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)


def flip(file: Path, at: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def cut_last_page(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-PAGE])


def cut_within_last_page(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-100])


def zero_first_page(file: Path) -> None:
    file.write_bytes(bytes(PAGE) + file.read_bytes()[PAGE:])


def damage_schema_text(file: Path) -> None:
    data = file.read_bytes()
    assert data.count(b"CREATE TABLE entries") == 1
    file.write_bytes(data.replace(b"CREATE TABLE entries", b"CREATE TABLf entries"))


def damage_a_columns_name(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data.replace(b"not_before      REAL", b"not_bef\xf3re      REAL"))


async def fill(spool: SqliteSpool, calls: int = CALLS) -> None:
    for first in range(0, calls, 40):
        await spool.log.append_submission(submission([call(number) for number in range(first, first + 40)]))


@pytest.mark.parametrize(
    "damage",
    part(
        [cut_last_page, cut_within_last_page, zero_first_page, damage_schema_text, damage_a_columns_name]
        + [
            pytest.param(lambda file, at=at: flip(file, at), id=f"flip {at}")
            for at in (16, 18, 28, 31, 44, 47, 56, 60, 63, 100, 103, 105, 108, 111, 112)
        ],
        every=3,
    ),
)
async def test_a_file_that_is_nearly_whole_keeps_its_records(
    start: Starter, damage: Callable[[Path], None]
) -> None:
    """A truncated end, a damaged header or a damaged schema table loses no record on another page."""
    first = await start()
    await first.deliveries.set_routes([ROUTE])
    await fill(first)
    filler = "CREATE TABLE filler (data BLOB); INSERT INTO filler VALUES (zeroblob(20000)); "
    await first.database.run(lambda connection: connection.executescript(filler).close())
    await first.close()
    damage(first.directory / "spool.sqlite")

    spool = await start()

    assert [call(number)[0] for number in range(CALLS)] == await everything(spool.log)
    (route,) = await spool.deliveries.route_states()
    assert CALLS == route.queued
    await add(spool.log, call(1000))
    await assert_books_balance(spool.log)


async def test_rows_between_the_damage_and_where_a_leap_ended_are_read(start: Starter) -> None:
    """One damaged leaf page loses only the entries on it."""
    first = await start()
    for number in range(120):
        await add(first.log, (call(number)[0], call(number)[1]))
    await first.close()
    file = first.directory / "spool.sqlite"
    with sqlite3.connect(file) as connection:
        leaves = "SELECT pageno, ncell FROM dbstat WHERE name = 'entries' AND pagetype = 'leaf' ORDER BY path"
        found = connection.execute(leaves).fetchall()
    connection.close()
    page, cells = found[len(found) // 2]
    data = bytearray(file.read_bytes())
    data[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    file.write_bytes(data)
    notes.mark_damaged(first.directory, ValueError("test"))

    spool = await start()

    assert cells == (await everything(spool.log)).count(None) == (await topic_terms(spool.log))["damaged"]
    await assert_books_balance(spool.log)


@pytest.mark.parametrize("table", ["entries", "devices"])
async def test_a_page_that_leads_back_ends_the_reading(start: Starter, table: str) -> None:
    """
    If a damaged page leads back to the root of its table, reading ends and does not return the same rows forever.
    """
    first = await start()
    await fill(first)
    await first.close()
    connection = sqlite3.connect(first.directory / "spool.sqlite", isolation_level=None)
    numbers = "WITH RECURSIVE n(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM n WHERE n < 1400)"
    if table == "entries":
        connection.execute(
            f"{numbers} INSERT INTO entries SELECT 'unit-cost', n, 1, 0.0, 0, 1, 0, zeroblob(900) FROM n"
        )
    else:
        columns = connection.execute("SELECT name, type FROM pragma_table_info('devices')").fetchall()
        values = [{"INTEGER": "0", "REAL": "0.0", "TEXT": "'{}'", "BLOB": "x''"}[type] for _, type in columns]
        values[0] = "printf('%0300d', n)"
        connection.execute(f"{numbers} INSERT INTO devices SELECT {', '.join(values)} FROM n")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    leaves = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path DESC LIMIT 3"
    found = [page for (page,) in connection.execute(leaves, (table,))]
    connection.close()
    file = first.directory / "spool.sqlite"
    data = bytearray(file.read_bytes())
    for page in found:
        data[(page - 1) * PAGE : page * PAGE] = data[(root - 1) * PAGE : root * PAGE]
    file.write_bytes(data)
    notes.mark_damaged(first.directory, ValueError("test"))

    spool = await start()

    assert [call(number)[0] for number in range(CALLS)] == await everything(spool.log)


# -- the WAL -------------------------------------------------------------------------------------------------


async def test_commits_after_a_flipped_bit_in_the_log_are_read(start: Starter, tmp_path: Path) -> None:
    """
    SQLite ignores all frames after a damaged one. The salvage reads them and loses only the entry with
    the flipped bit.
    """
    first = await start()
    for number in range(60):
        await add(first.log, call(number))
    directory = killed(first.directory, tmp_path / "damaged")
    log = directory / "spool.sqlite-wal"
    flip(log, log.stat().st_size // 2, bit=3)

    spool = await start(directory)

    found = await everything(spool.log)
    lost = found.count(None)
    assert lost <= 1
    assert {call(number)[0].id for number in range(60)} >= {record.id for record in found if record}
    assert 60 - lost == len([record for record in found if record])
    await add(spool.log, call(1000))
    await assert_books_balance(spool.log)


@pytest.mark.parametrize("at", part([0, 8, 16, 24, 28, 31], every=3))
async def test_a_damaged_header_of_the_log_hides_no_commit(start: Starter, tmp_path: Path, at: int) -> None:
    """
    If the header of the WAL is damaged, the frames themselves show which of them form a commit. No
    commit is lost.
    """
    first = await start()
    for number in range(10):
        await add(first.log, call(number))
    directory = killed(first.directory, tmp_path / "damaged")
    flip(directory / "spool.sqlite-wal", at, bit=2)

    spool = await start(directory)

    assert [call(number)[0] for number in range(10)] == await everything(spool.log)
    await assert_books_balance(spool.log)


def tear_the_end(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: -(PAGE + 24) // 2])


def tear_the_first_frame(log: Path) -> None:
    """Damage the first frame of the last transaction. Its other frames are intact and marked as a commit."""
    ends = [place for place, frame in enumerate(read_frames(log, PAGE)) if frame.pages_after]
    torn = read_frames(log, PAGE)[ends[-2] + 1]
    assert not torn.pages_after
    flip(log, torn.at + PAGE // 2)


@pytest.mark.parametrize("tear", [tear_the_end, tear_the_first_frame])
async def test_a_transaction_that_was_cut_off_is_no_damage(
    start: Starter, tmp_path: Path, tear: Callable[[Path], None]
) -> None:
    """A power cut may tear the last transaction. It was never acknowledged, so nothing is salvaged."""
    first = await start()
    await first.database.run(
        lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    )
    for number in range(10):
        await add(first.log, call(number))
    directory = killed(first.directory, tmp_path / "cut")
    log = directory / "spool.sqlite-wal"
    tear(log)
    (directory / notes.NOTE).unlink(missing_ok=True)

    spool = await start(directory)

    assert [call(number)[0] for number in range(9)] == await everything(spool.log)
    assert not list(directory.glob("*.damaged-*"))
    assert not list(directory.glob("*.kept"))
    await assert_books_balance(spool.log)


@pytest.mark.parametrize("damage", ["cut", "gone", "last bit"])
async def test_acknowledged_commits_that_the_log_lost_are_counted(
    start: Starter, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """
    If the log lost acknowledged commits, the note, which has the highest acknowledged number, shows it. Missing
    records up to that number count as damaged and are logged.
    """
    first = await start()
    await first.database.run(
        lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    )
    for number in range(10):
        await add(first.log, call(number))
    await first.log.run_retention()  # this call writes the note of stored records
    directory = killed(first.directory, tmp_path / "damaged")
    log = directory / "spool.sqlite-wal"
    if damage == "cut":
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    elif damage == "gone":
        log.unlink()
    else:
        flip(log, log.stat().st_size - 9, bit=1)

    with caplog.at_level(logging.WARNING):
        spool = await start(directory)

    found = await everything(spool.log)
    assert 10 == len(found)
    lost = found.count(None)
    assert (lost > 0) == (damage != "last bit")
    assert lost == (await topic_terms(spool.log)).get("damaged", 0)
    assert {"commits_lost", "spool_salvaged"} & {getattr(record, "action", "") for record in caplog.records}
    await add(spool.log, call(1000))
    await assert_books_balance(spool.log)


async def test_an_emptied_file_is_made_again_from_its_log(start: Starter, tmp_path: Path) -> None:
    """
    An emptied file is rebuilt from its WAL, which still has everything that was not moved into the file.
    """
    first = await start()
    for number in range(10):
        await add(first.log, call(number))
    directory = killed(first.directory, tmp_path / "damaged")
    (directory / "spool.sqlite").write_bytes(b"")

    spool = await start(directory)

    assert [call(number)[0] for number in range(10)] == await everything(spool.log)


# -- the marker, versions, routes ----------------------------------------------------------------------------


@pytest.mark.parametrize("left", part(["gone", "moved by hand", "empty marker", "strange marker"], every=2))
async def test_a_marker_without_its_file_stops_no_start(start: Starter, left: str) -> None:
    """If a marker exists without its file, a new file is created."""
    first = await start()
    await add(first.log, call(1))
    await first.close()
    file, marker = first.directory / "spool.sqlite", first.directory / notes.MARKER
    marker.write_bytes(
        {"strange marker": b"\xff/../../etc", "empty marker": b""}.get(left, b"spool.sqlite.damaged-7")
    )
    if left == "moved by hand":
        file.rename(first.directory / "elsewhere")
    elif left == "gone":
        file.unlink()

    spool = await start()

    assert not marker.exists()
    await add(spool.log, call(2))
    expected = [call(2)[0]] if left in ("gone", "moved by hand") else [call(1)[0], call(2)[0]]
    assert expected == await everything(spool.log)


async def test_a_salvage_that_was_killed_after_its_commit_is_not_done_again(
    start: Starter, tmp_path: Path
) -> None:
    """
    If a salvage was killed after its commit, its marker still exists. The rows must not be copied again
    over newer records.
    """
    first = await start()
    await add(first.log, call(1))
    await first.close()
    notes.mark_damaged(first.directory, ValueError("test"))
    second = await start()
    await add(second.log, call(2))
    await second.close()
    (aside,) = (
        path.name for path in first.directory.glob("spool.sqlite.damaged-*") if path.suffix[-1].isdigit()
    )
    (first.directory / notes.MARKER).write_text(aside)

    spool = await start()

    assert [call(1)[0], call(2)[0]] == await everything(spool.log)
    await assert_books_balance(spool.log)


@pytest.mark.parametrize("number", part([0, 2, 7, 1 << 30], every=2))
async def test_a_flipped_version_is_damage(start: Starter, number: int) -> None:
    """
    The header's version differs from that of the last migration. The file is neither refused nor migrated again.
    """
    first = await start()
    await add(first.log, call(1))
    await first.close()
    with sqlite3.connect(first.directory / "spool.sqlite") as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    connection.close()

    spool = await start()

    assert [call(1)[0]] == await everything(spool.log)


async def test_deliveries_that_are_lost_are_sent_again(start: Starter) -> None:
    """
    If deliveries are lost, their outcome is unknown, so their records are open again and are sent again. The
    accounting balances.
    """
    first = await start()
    await first.deliveries.set_routes([ROUTE])
    for number in range(10):
        await add(first.log, call(number))
    done = await first.deliveries.take_due_delivery(ROUTE.name, now=1e12, max_records=4)
    assert done is not None
    await first.deliveries.store_settlement(done, Settlement(delivered=4))
    assert await first.deliveries.take_due_delivery(ROUTE.name, now=1e12, max_records=4)
    await first.close()
    with sqlite3.connect(first.directory / "spool.sqlite") as connection:
        connection.execute("DELETE FROM deliveries")
    connection.close()

    spool = await start()
    await spool.deliveries.set_routes([ROUTE])

    again = await spool.deliveries.take_due_delivery(ROUTE.name, now=1e12, max_records=4)
    assert again is not None
    assert again.first == 5
    assert again.last == 8
    await assert_books_balance(spool.log)


@pytest.mark.parametrize(
    "lost",
    part(
        [
            "DELETE FROM routes",
            "UPDATE routes SET next = 1, delivered = 0",
            "DELETE FROM routes; DELETE FROM deliveries",
            "UPDATE routes SET delivered = 0, next = 3; DELETE FROM deliveries",
        ],
        every=2,
    ),
)
async def test_route_whose_row_is_lost_continues_where_it_was(start: Starter, lost: str) -> None:
    """
    A route whose row is lost continues where it was, because the note states which records were acknowledged. Only
    open records are sent again.
    """
    first = await start()
    await first.deliveries.set_routes([ROUTE])
    for number in range(10):
        await add(first.log, call(number))
    done = await first.deliveries.take_due_delivery(ROUTE.name, now=1e12, max_records=4)
    assert done is not None
    await first.deliveries.store_settlement(done, Settlement(delivered=4))
    assert await first.deliveries.take_due_delivery(ROUTE.name, now=1e12, max_records=4)
    await first.close()  # this call writes the note of stored records
    with sqlite3.connect(first.directory / "spool.sqlite") as connection:
        connection.executescript(lost)
    connection.close()
    notes.mark_damaged(first.directory, ValueError("test"))

    spool = await start()
    await spool.deliveries.set_routes([ROUTE])

    again = await spool.deliveries.take_due_delivery(ROUTE.name, now=1e12, max_records=100)
    assert again is not None
    assert 5 == again.first
    (route,) = await spool.deliveries.route_states()
    assert route.queued == 6
    assert route.delivered == 4
    await assert_books_balance(spool.log)


@pytest.mark.parametrize(
    "wrong",
    part(
        [
            "UPDATE routes SET next = 1 << 40",
            "UPDATE routes SET delivered = -5",
            "UPDATE routes SET next = 3",
            "UPDATE books SET n = 1 << 40 WHERE term = 'accepted'",
            "UPDATE books SET n = 0 WHERE term = 'received'",
            "UPDATE books SET carried = 1 << 50",
            "DELETE FROM books",
            "DELETE FROM commits",
            "UPDATE books SET term = '' WHERE term = 'received'",
            "UPDATE books SET term = 'kept' WHERE term = 'received'",
            "UPDATE books SET topic = '' WHERE term = 'received'",
            "UPDATE books SET n = 1 << 60 WHERE term = 'received'",
            "UPDATE books SET n = 3 WHERE term = 'received'",
            "UPDATE books SET carried = -7 WHERE term = 'received'",
            "UPDATE sizes SET entries = -(1 << 40)",
        ],
        every=3,
    ),
)
async def test_changed_counters_are_repaired(start: Starter, wrong: str) -> None:
    """A changed counter never stops or delays a start, and loses no record."""
    first = await start()
    await first.deliveries.set_routes([ROUTE])
    for number in range(10):
        await add(first.log, call(number))
    await first.close()
    with sqlite3.connect(first.directory / "spool.sqlite") as connection:
        connection.execute(wrong)
    connection.close()

    spool = await start()
    await spool.deliveries.set_routes([ROUTE])

    assert [call(number)[0] for number in range(10)] == await everything(spool.log)
    (route,) = await spool.deliveries.route_states()
    assert 0 <= route.queued <= 10
    await add(spool.log, call(1000))
    # A start does not notice some changes of the file. A recount does, and then the next start repairs them.
    if (await spool.log.verify()).imbalances:
        await spool.close()
        spool = await start()
        await spool.deliveries.set_routes([ROUTE])
    assert [] == (await spool.log.verify()).imbalances
    assert 11 == len(await everything(spool.log))


def write_other_types(file: Path, table: str) -> None:
    """Replace every value of a row, except its id, by a BLOB, as a damaged row header would."""
    with sqlite3.connect(file) as connection:
        (text,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        loose = text.replace(") STRICT, WITHOUT ROWID", ") WITHOUT ROWID").replace(") STRICT", ")")
        replace_schema(connection, table, loose)
    connection.close()
    with sqlite3.connect(file) as connection:
        columns = connection.execute(
            f"SELECT name FROM pragma_table_info('{table}') WHERE name != 'id'"
        ).fetchall()
        for (column,) in columns:
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = x'ff'")
        replace_schema(connection, table, text)
    connection.close()


def replace_schema(connection: sqlite3.Connection, table: str, text: str) -> None:
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (text, table))


@pytest.mark.parametrize(
    "table",
    part([
        "amendments", "books", "clusters", "commits", "conflicts", "dead", "deliveries", "devices", "entries",
        "event_types", "facts", "id_runs", "pending", "routes", "series", "sizes", "stream_sizes", "streams",
        "unrecognised",
    ], every=4),
)  # fmt: skip
async def test_values_of_another_type_stop_no_start(start: Starter, table: str) -> None:
    """A damaged row header changes the types of values. Such rows are left out, and the start succeeds."""
    first = await start()
    await first.deliveries.set_routes([ROUTE])
    for number in range(10):
        await add(first.log, call(number))
    await first.close()
    write_other_types(first.directory / "spool.sqlite", table)

    spool = await start()
    await spool.deliveries.set_routes([ROUTE])

    assert 10 == len(await everything(spool.log))
    await add(spool.log, call(1000))
    assert call(1000)[0] == (await everything(spool.log))[-1]
    assert isinstance((await spool.log.verify()).imbalances, list)


# -- while running -------------------------------------------------------------------------------------------


async def test_what_a_damaged_page_hides_waits_for_a_salvage(start: Starter) -> None:
    """
    If a page is damaged during operation, its entries are neither acknowledged nor counted as damaged. Reads fail
    until the next start salvages them.
    """
    first = await start()
    for number in range(40):
        await add(first.log, call(number))
    index = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_entries_1'"
    page = await first.database.run(lambda connection: connection.execute(index).fetchone()[0])
    await first.close()
    second = await start()
    damage_page(second.directory / "spool.sqlite", page)
    with pytest.raises(SpoolDamaged):
        await everything(second.log)
    books = await second.log.verify()
    assert "an index page for records 1 to 40 is damaged: restart Tollhouse to salvage them" in " ".join(
        books.imbalances
    )
    assert "damaged" not in (await topic_terms(second.log))
    await second.close()

    spool = await start()

    assert [call(number)[0] for number in range(40)] == await everything(spool.log)
    await assert_books_balance(spool.log)


async def test_a_recount_names_a_damaged_row_of_a_commit_and_sets_it_aside(start: Starter) -> None:
    """
    If a recount finds a damaged row of a commit, the row is set aside. The other rows are counted, and the counters
    keep the damaged row's values, so the accounting balances the next time.
    """
    spool = await start()
    for number in range(10):
        await add(spool.log, call(number))
    await spool.database.run(
        lambda connection: connection.execute("UPDATE commits SET terms = x'ff' WHERE id = 4").fetchall()
    )
    books = await spool.log.verify()
    assert "commit 4: its row is damaged" in books.imbalances
    assert 9 == books.topics[AI_TELEMETRY]["accepted"]
    await assert_books_balance(spool.log)
    assert 10 == (await spool.log.verify()).topics[AI_TELEMETRY]["accepted"]


async def test_damaged_row_that_nobody_recounted_is_set_aside_by_retention(
    start: Starter, clock: MovedClock
) -> None:
    """
    If nobody recounted a damaged row of a commit, retention sets it aside before it carries the row's counts
    forward, so the accounting balances.
    """
    spool = await start()
    for number in range(10):
        await add(spool.log, call(number))
    await spool.database.run(
        lambda connection: connection.execute("UPDATE commits SET terms = x'ff' WHERE id = 4").fetchall()
    )
    clock.move(8 * 86_400)
    await add(spool.log, call(10))
    assert 10 == await spool.log.run_retention()
    await assert_books_balance(spool.log)
    assert 11 == (await spool.log.verify()).topics[AI_TELEMETRY]["accepted"]


async def test_a_recount_reads_around_a_damaged_page_of_commits(start: Starter) -> None:
    """
    The recount names the unreadable range and counts the rows before and after it. The next start
    salvages the page.
    """
    first = await start()
    for number in range(600):
        await add(first.log, call(number))
    await first.close()
    second = await start()
    leaves = "SELECT pageno FROM dbstat WHERE name = 'commits' AND pagetype = 'leaf' ORDER BY path"
    pages = await second.database.run(lambda connection: connection.execute(leaves).fetchall())
    assert len(pages) > 2
    damage_page(second.directory / "spool.sqlite", pages[1][0])
    books = await second.log.verify()
    assert [one for one in books.imbalances if "some of them are on a damaged page" in one]
    assert 0 < books.topics[AI_TELEMETRY]["accepted"] < 600
    await second.close()

    await assert_books_balance((await start()).log)


def damage_page(file: Path, page: int) -> None:
    """Overwrite a page with zeros while the file is open."""
    with file.open("r+b") as target:
        target.seek((page - 1) * PAGE)
        target.write(bytes(PAGE))
