"""ledger.sqlite on a real disk: a full disk delays counting, and a damaged file is rebuilt from the log."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spool.errors import SpoolUnavailable
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.sqlite.ledger import SqliteLedger, SqliteLedgerRows, open_ledger
from tests.spool.contract.test_ledger import Interrupted, everything, hourly, total
from tests.spool.ledger.rebuilding import are_totals_complete
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call, recount

BEGINNING = datetime.fromtimestamp(BEGIN, UTC)
Opener = Callable[[], Awaitable[Ledger]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opener]:
    ledgers: list[Ledger] = []

    async def opener() -> Ledger:
        ledgers.append(await open_ledger(tmp_path, clock=FakeClock()))
        return ledgers[-1]

    yield opener
    for ledger in ledgers:
        await ledger.close()


async def test_sums_and_reach_move_together(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A failed transaction changes neither the sums nor the position. Repeated, it counts the same records once.
    """
    log, ledger = FakeLog(), await opened()
    log.add([call()])
    await ledger.catch_up(log)
    log.add([call(user="new"), call()])
    with monkeypatch.context() as broken:
        broken.setattr("spool.sqlite.ledger.SqliteLedgerRows.set_state", _disk_full)
        with pytest.raises(SpoolUnavailable, match="disk is full"):
            await ledger.catch_up(log)
    assert 2 == (await ledger.state()).reach
    assert recount(FakeLog.of(log, upto=1), "user") == await hourly(ledger, "user")
    await ledger.catch_up(log)
    assert recount(log, "user") == await hourly(ledger, "user")


def _disk_full(*_: object, **__: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


async def test_a_damaged_file_is_made_again(opened: Opener, tmp_path: Path) -> None:
    """
    At the start, a damaged file is renamed and the log's records are counted again. The state reports records
    that the log no longer has.
    """
    log, ledger = FakeLog(), await opened()
    log.add([call(), call()])
    log.add([call(), call(), call()])
    await ledger.catch_up(log)
    await ledger.close()
    (tmp_path / "ledger.sqlite").write_bytes(b"no database at all" * 1000)
    log.forget_below(3)
    ledger = await opened()
    await ledger.catch_up(log)
    state = await ledger.state()
    assert (await total(ledger)).calls == 3
    assert state.missed == 2
    assert state.reach == 6
    assert [f"ledger.sqlite.damaged-{BEGIN}"] == [path.name for path in tmp_path.glob("*.damaged-*")]


async def test_missing_tables_are_damage(opened: Opener, tmp_path: Path) -> None:
    """
    If a flipped number in the first page hides the tables of ledger.sqlite, this counts as damage, although the
    version still says that the tables exist.
    """
    log, ledger = FakeLog(), await opened()
    log.add([call(), call()])
    await ledger.catch_up(log)
    await ledger.close()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with (tmp_path / "ledger.sqlite").open("r+b") as file:
        file.seek(103)  # offset of the number of rows in the page with the schema table
        file.write(bytes(2))
    ledger = await opened()
    await ledger.catch_up(log)
    assert (await total(ledger)).calls == 2
    assert [f"ledger.sqlite.damaged-{BEGIN}"] == [path.name for path in tmp_path.glob("*.damaged-*")]


async def test_damage_in_operation(opened: Opener, tmp_path: Path) -> None:
    """Damage during operation causes one "unavailable" answer. After that the totals are complete again."""
    log, ledger = FakeLog(), await opened()
    log.add([call(user=f"u{number}") for number in range(2000)])
    await ledger.catch_up(log)
    await ledger.close()
    _damage(tmp_path / "ledger.sqlite")
    ledger = await opened()
    with pytest.raises(SpoolUnavailable):
        await ledger.costs(everything("user"))
    await ledger.catch_up(log)
    assert (await total(ledger)).calls == 2000


async def test_damage_that_a_reader_meets_while_calls_are_counted(opened: Opener, tmp_path: Path) -> None:
    """
    If a reader finds damage in ledger.sqlite while calls are being counted, the file is renamed and a new one
    counts from the first number.
    """
    log, ledger = Interrupted(), await opened()
    log.add([call(user=f"u{number}") for number in range(2000)])
    await ledger.catch_up(log)
    await ledger.close()
    _damage(tmp_path / "ledger.sqlite")
    ledger = await opened()
    await ledger.catch_up(log)
    log.add([call(user="late")])

    async def ask() -> None:
        assert await are_totals_complete(ledger)
        with pytest.raises(SpoolUnavailable):
            await ledger.costs(everything("user"))
        assert not await are_totals_complete(ledger)

    log.meanwhile = ask
    await ledger.catch_up(log)
    state = await ledger.state()
    assert (await total(ledger)).calls == 2001
    assert state.reach == 2002
    assert state.missed == 0
    assert recount(log, "user") == await hourly(ledger, "user")


def _damage(path: Path) -> None:
    """Overwrite the first page of the hourly totals. Everything else stays readable."""
    connection = sqlite3.connect(path)
    [page] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'hours'").fetchone()
    connection.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * 8192 : page * 8192] = b"\xff" * 8192
    path.write_bytes(content)


@pytest.mark.usefixtures("flushed")
async def test_what_is_counted_is_flushed(tmp_path: Path) -> None:
    """
    What the totals have counted is flushed to disk. The log deletes entries that the totals have counted, so after
    a power cut they could not be counted again.
    """
    store = await SqliteLedger.open(tmp_path, FakeClock())

    def synchronous(ledger_rows: LedgerRows) -> int:
        assert isinstance(ledger_rows, SqliteLedgerRows)
        found: int = ledger_rows._connection.execute("PRAGMA synchronous").fetchone()[0]
        return found

    full = 2
    assert full == await store.change(synchronous)
    await store.close()
