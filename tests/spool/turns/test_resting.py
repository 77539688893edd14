"""
Repeated work of a busy party rests in between, if a party that used far less may commit. Each enrolment and
each count flushes to disk and would delay that commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from spool.devices import table as table_module
from spool.devices.table import DeviceTable
from spool.ledger import ledger as ledger_module
from spool.ledger.ledger import Ledger
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.sqlite.memory_log import MemoryDatabase
from spool.turns.fair_turns import FairTurnScheduler
from tests.spool.contract.test_devices import Counted, device
from tests.spool.ledger_log import FakeClock, FakeLog, call
from tests.waiting import awaited

OTHERS = 1000  # number of event loop passes, enough for work that does not rest


async def others(is_over: Callable[[], bool]) -> None:
    """Give other tasks up to OTHERS turns."""
    for _ in range(OTHERS):
        if is_over():
            return
        await asyncio.sleep(0)


Twice = Callable[[], Awaitable[tuple[Callable[[], Awaitable[object]], Callable[[], int]]]]


async def enrolments() -> tuple[Callable[[], Awaitable[object]], Callable[[], int]]:
    """
    Return work that enrols two batches, and a function that returns the number of batches. The second batch
    starts to wait while the first is written.
    """
    rows = Counted(SqliteDevices(MemoryDatabase(SPOOL)))
    table = await DeviceTable.open(rows)

    async def work() -> None:
        first = asyncio.create_task(table.replace_row(device("first")))
        await others(lambda: bool(rows.writes))
        await table.replace_row(device("second"))
        await first

    rows.rows.wait_for_running_commits = lambda: asyncio.sleep(0)  # type: ignore[method-assign]
    return work, lambda: len(rows.writes)


async def countings() -> tuple[Callable[[], Awaitable[object]], Callable[[], int]]:
    """
    Return work that makes two queries, each after a new call, and a function that returns the number of queries.
    """
    log, ledger = FakeLog(), await Ledger(new_in_memory_ledger(), clock=FakeClock()).load()

    async def work() -> None:
        for _ in range(2):
            log.add([call()])
            await ledger.catch_up(log)

    return work, lambda: ledger._reach - 1


@pytest.mark.parametrize("begin", [enrolments, countings])
@pytest.mark.parametrize("used_s", [0.05, 10.0])
async def test_who_used_far_more_rests(begin: Twice, used_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A party that used far more than others rests between two pieces of work. A party that used little, or as
    much as others, continues at once.
    """
    for module in (table_module, ledger_module):
        monkeypatch.setattr(module, "REST", 1e9)
        monkeypatch.setattr(module, "MOST_REST_S", 3600.0)
    turns = FairTurnScheduler()
    work, done = await begin()
    turns.find_or_add_party("busy").charge_time(used_s)
    turns.note_submission(turns.find_or_add_party("small"))

    async def as_busy() -> None:
        with turns.new_request("busy") as one:
            await one.set_party_and_wait_for_turn()
            await work()

    working = asyncio.create_task(as_busy())
    if used_s < 1:
        await awaited(working)
    await others(lambda: False)
    assert (1 if used_s > 1 else 2) == done()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_how_many_devices_a_key_enrolled_is_known() -> None:
    """How many devices a key enrolled is known from a stored number, which does not depend on their later state."""
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    for name, key in (("a", "fleet"), ("b", "fleet"), ("c", "other")):
        await table.replace_row(device(name, enrolled_by=key))
    await table.replace_row(device("a", enrolled_by="other"))
    await table.replace_row(device("b", enrolled_by="fleet", hostname="mill"))
    await table.delete(["c"], [])
    assert (1, 1, 0) == tuple(map(table.count_enrolled, ("fleet", "other", "nobody")))
