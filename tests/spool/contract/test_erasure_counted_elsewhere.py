"""An erasure while another process of the same storage counts the records that it renames."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from unittest.mock import AsyncMock

import pytest

from spool.engines import open_storage
from spool.ledger.queries import CostQuery
from spool.people import ERASED
from spool.storage import Storage, StorageOptions
from tests.moved_clock import MovedClock
from tests.spool.contract.test_erasing import use_people
from tests.spool.contract.test_erasure_clocks import ALWAYS, HOUR_S, erase, made, send
from tests.spool.ledger.engines import POSTGRES


async def calls_by_user(storage: Storage) -> Mapping[str | None, int]:
    """Return the calls of each name in the totals. Each process may know fewer records than the other one counted."""
    await storage.ledger.catch_up(storage.log)
    rows = await storage.ledger.costs(CostQuery(**ALWAYS, group_by=("user",)))
    return {row.group[0]: row.calls for row in rows if row.calls}


@pytest.mark.parametrize("options", [POSTGRES], indirect=True)
async def test_records_that_another_process_has_read_are_counted_without_the_name(
    options: StorageOptions, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The other process reads records before they are renamed, and stores its sums after the totals were renamed. Its
    sums are dropped and the records are read again, so no name comes back.
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
        await second.log.newest_number("ai-telemetry")
        counting = asyncio.create_task(second.ledger.catch_up(second.log))
        await has_read.wait()
        with monkeypatch.context() as patch:  # the other process alone has the turn to count
            patch.setattr(first.ledger, "catch_up", AsyncMock())
            _, done = await erase(first, clock)
        is_erased.set()
        await counting
        assert 3 == done.records.records
        assert {ERASED: 3} == await calls_by_user(first)
        assert {ERASED: 3} == await calls_by_user(second)
    finally:
        await second.close()
        await first.close()
