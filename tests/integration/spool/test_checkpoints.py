"""
The write-ahead log (WAL) next to the file: a failing checkpoint is reported, and the WAL's size is counted.
"""

from __future__ import annotations

import logging
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from spool.errors import SpoolFull
from spool.sqlite import database
from spool.sqlite.log import log
from tests.integration.spool.conftest import Starter
from tests.spool.contract.examples import add, assert_books_balance, everything
from tests.spool.contract.log.test_retention import wide


@contextmanager
def files_bounded(bytes: int) -> Iterator[None]:
    """Limit the size of every file that this process writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(autouse=True)
def try_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_EVERY_S", 0.0)


async def test_a_checkpoint_that_fails_is_said(start: Starter, caplog: pytest.LogCaptureFixture) -> None:
    """
    If a checkpoint fails because the file cannot grow while the WAL can, commits succeed, the failure is logged
    once, and nothing is lost afterwards.
    """
    spool = await start()
    bound = spool.database.path.stat().st_size + 64 * 1024
    with files_bounded(bound), caplog.at_level(logging.ERROR):
        kept = 0
        while not (await spool.log.stats()).wal_problem:
            kept += 1
            await add(spool.log, wide(kept))
        for _ in range(2):
            kept += 1
            await add(spool.log, wide(kept))
    assert 1 == len([one for one in caplog.records if getattr(one, "action", "") == "checkpoint_failed"])
    assert "cannot be moved into the file" in (await spool.log.stats()).wal_problem
    await add(spool.log, wide(kept + 1))
    assert "" == (await spool.log.stats()).wal_problem
    assert kept + 1 == len(await everything(spool.log))
    await assert_books_balance(spool.log)


async def test_a_reader_that_holds_the_log_is_seen_and_counted(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a reader keeps the log busy, the WAL grows and counts against spool.max_bytes. It is moved into the file once
    the reader ends.
    """
    for module in (database, log):
        monkeypatch.setattr(module, "WAL_BYTES", 1 << 20)
    spool = await start(max_bytes=4 << 20)
    await add(spool.log, wide(0))
    with closing(sqlite3.connect(spool.database.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        with pytest.raises(SpoolFull):
            for number in range(1, 2000):
                await add(spool.log, wide(number))
        stats = await spool.log.stats()
        assert "another process reads" in stats.wal_problem
        assert stats.wal_bytes > 1 << 20
        assert stats.writable is False
        assert stats.free_bytes == 0
