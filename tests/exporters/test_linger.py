"""How long the newest records of a route wait for more records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import spool.sqlite.in_memory
from exporters.pace import DelayAfterCommit, RouteSendDelay
from spool.clock import AHEAD_S, elapsed_s
from spool.record import AI_TELEMETRY
from spool.settings import SpoolSettings
from spool.sqlite.spool import SqliteSpool
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call
from tests.waiting import limited


@pytest.mark.parametrize("seconds", [0.0, 0.05])
@pytest.mark.parametrize("records", [1, 9, 10, 24, 30])
async def test_everything_leaves_without_further_records(seconds: float, records: int) -> None:
    """Records that do not fill a delivery wait for their time, not for the next commit."""
    opened = await spool.sqlite.in_memory.open_spool(settings=SpoolSettings(hold=0), clock=MovedClock())
    linger = RouteSendDelay(opened.log, AI_TELEMETRY, seconds=seconds, max_records=10)
    await add(opened.log, *[call(number) for number in range(records)])

    steps = []
    async with limited():
        async for below in linger.first_unsendable_number_changes():
            steps.append(below)
            if below == records + 1:
                break

    whole = records // 10 * 10
    assert steps[-2:] == ([whole + 1, records + 1] if seconds and 0 < whole < records else [records + 1])
    await opened.close()


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
async def kept(clock: MovedClock) -> AsyncIterator[SqliteSpool]:
    opened = await spool.sqlite.in_memory.open_spool(settings=SpoolSettings(hold=0), clock=clock)
    yield opened
    await opened.close()


def lingering(kept: SqliteSpool, clock: MovedClock) -> DelayAfterCommit:
    async def uncut() -> int:
        return 1

    return DelayAfterCommit(kept.log, AI_TELEMETRY, clock, seconds=900, max_records=1000, uncut=uncut)


async def next_below(linger: DelayAfterCommit) -> int:
    async with limited():
        async for below in linger.first_unsendable_number_changes():
            return below
    raise AssertionError("the log ended")


async def test_a_commit_of_a_clock_that_was_ahead_leaves_at_once(
    kept: SqliteSpool, clock: MovedClock
) -> None:
    """
    If records were committed by a clock that was ahead, they and all later records are sent at once instead
    of waiting until that time.
    """
    clock.move(5 * 3600)
    await add(kept.log, call(1))
    clock.set_back(5 * 3600)
    await add(kept.log, call(2))
    assert 3 == await next_below(lingering(kept, clock))


async def test_request_to_hurry_covers_only_records_committed_before(
    kept: SqliteSpool, clock: MovedClock
) -> None:
    """Records committed before the request leave at once. Later records wait for their time."""
    linger = lingering(kept, clock)
    waits = asyncio.create_task(next_below(linger))
    await add(kept.log, call(1))
    linger.release_committed_records()
    assert 2 == await waits
    clock.move(3)
    await add(kept.log, call(2))
    later = asyncio.create_task(next_below(linger))
    done, _ = await asyncio.wait([later], timeout=0.2)
    assert not done
    clock.move(900)
    assert 3 == await later


async def test_a_time_far_ahead_is_long_ago() -> None:
    assert elapsed_s(10.0, 15.0) == 5.0
    assert -AHEAD_S == elapsed_s(10.0 + AHEAD_S, 10.0)
    assert float("inf") == elapsed_s(11.0 + AHEAD_S, 10.0)
