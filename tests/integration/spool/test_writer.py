"""The one task that commits: when it is gone, everybody hears it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from spool.errors import SpoolUnavailable
from spool.log import Receipt, Submission
from spool.sqlite.writer import GroupWriter
from tests.integration.spool.conftest import Starter
from tests.spool.contract.world import add, call, submission

pytestmark = pytest.mark.asyncio


def end_of_commits() -> None:
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "group commit"]
    task.cancel()


async def test_whoever_waits_for_a_dead_writer_is_told() -> None:
    """Those in its hand, those behind them, and those that come later; closing it waits for nothing."""
    began = asyncio.Event()

    async def commit(_: Sequence[Submission]) -> Sequence[Receipt]:
        began.set()
        return await asyncio.Future()

    async def between() -> bool:
        return False

    writer = GroupWriter(commit, between)
    in_hand = asyncio.create_task(writer.append(submission([call(1)])))
    await began.wait()
    behind = asyncio.create_task(writer.append(submission([call(2)])))
    await asyncio.sleep(0)
    end_of_commits()
    for waiting in (in_hand, behind):
        with pytest.raises(SpoolUnavailable):
            await waiting
    with pytest.raises(SpoolUnavailable):
        await writer.append(submission([call(3)]))
    assert not writer.alive
    await writer.close()


async def test_a_log_whose_writer_died_says_so(start: Starter) -> None:
    """`alive` is what /livez asks; what was kept is there after the restart."""
    spool = await start()
    await add(spool.log, call(1))
    assert (await spool.log.stats()).alive
    end_of_commits()
    await asyncio.sleep(0)
    stats = await spool.log.stats()
    assert (False, False) == (stats.alive, stats.writable)
