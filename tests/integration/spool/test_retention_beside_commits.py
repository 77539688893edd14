"""Retention makes room for new records and must not delay commits."""

from __future__ import annotations

import asyncio
import threading

import pytest

from spool.log.duplicates import IdCompaction, IdsToCompact
from tests.integration.spool.conftest import Starter
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, assert_books_balance, call
from tests.waiting import LIMIT_S, awaited, limited


async def test_commits_go_on_while_retention_plans_runs_of_ids(
    start: Starter, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Commits continue while retention plans for many ids, which takes long. A call is committed meanwhile, and ids
    that the plan left out stay known.
    """
    spool = await start(retention=60, late_window=0)
    for number in range(10):
        await add(spool.log, call(number))
    clock.move(120)
    is_planning, may_end = threading.Event(), threading.Event()
    plan = IdsToCompact.plan_compaction

    def slow(oldest: IdsToCompact) -> IdCompaction:
        is_planning.set()
        assert may_end.wait(LIMIT_S)
        return plan(oldest)

    monkeypatch.setattr(IdsToCompact, "plan_compaction", slow)
    retention = asyncio.create_task(spool.log.run_retention())
    try:
        assert await asyncio.to_thread(is_planning.wait, LIMIT_S)
        async with limited():
            await add(spool.log, call(10, at=clock.now()))
    finally:
        may_end.set()
    assert 10 == await awaited(retention)
    monkeypatch.undo()
    for number in range(11):
        await add(spool.log, call(number))
    books = (await spool.log.books()).topics["ai-telemetry"]
    assert books["accepted"] == 11
    assert books["duplicates"] == 11
    await assert_books_balance(spool.log)
