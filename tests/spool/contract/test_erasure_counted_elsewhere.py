"""An erasure while another process of the same storage counts the records that it renames."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from spool.engines import open_storage
from spool.people import ERASED
from spool.postgres.log.log import PostgresLog
from spool.storage import Storage, StorageOptions
from tests.moved_clock import MovedClock
from tests.spool.contract.test_erasing import use_people
from tests.spool.contract.test_erasure_clocks import HOUR_S, calls_by_user, erase, made, send
from tests.spool.ledger.engines import POSTGRES


async def read_foreign_commits(storage: Storage) -> None:
    """Let a process know the records of the other one, as its task does."""
    assert isinstance(storage.log, PostgresLog)
    await storage.log.read_foreign_commits()


@pytest.mark.parametrize("options", [POSTGRES], indirect=True)
async def test_records_that_another_process_has_read_are_counted_without_the_name(
    options: StorageOptions, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The other process reads records before they are renamed, and stores its sums after the totals were renamed. Its
    sums are dropped and the records are read again, so no name comes back. Totals and records agree.
    """
    first = await open_storage(options, engine=options.storage.engine)
    second = await open_storage(options, engine=options.storage.engine)
    try:
        for storage in (first, second):
            use_people(storage)
        for number in range(1, 4):
            await send(first, made(number, clock.now() + HOUR_S))
        has_read, is_erased = asyncio.Event(), asyncio.Event()
        add_up = second.ledger._add_up_log

        async def read_and_wait(*arguments: Any) -> Any:
            found = await add_up(*arguments)
            has_read.set()
            await is_erased.wait()
            return found

        monkeypatch.setattr(second.ledger, "_add_up_log", read_and_wait)
        await read_foreign_commits(second)
        counting = asyncio.create_task(second.ledger.catch_up(second.log))
        await has_read.wait()
        with monkeypatch.context() as patch:  # the other process alone has the turn to count
            patch.setattr(first.ledger, "catch_up", AsyncMock())
            _, done = await erase(first, clock)
        is_erased.set()
        await counting
        for storage in (first, second):
            await read_foreign_commits(storage)
        assert 3 == done.records.records
        assert {ERASED: 3} == await calls_by_user(first)
        assert {ERASED: 3} == await calls_by_user(second)
    finally:
        await second.close()
        await first.close()
