"""How long the newest records of a route wait for others."""

from __future__ import annotations

import asyncio

import pytest

import spool.memory
from exporters.linger import Linger
from spool.record import AI_TELEMETRY
from spool.settings import SpoolSettings
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("seconds", [0.0, 0.05])
@pytest.mark.parametrize("records", [1, 9, 10, 24, 30])
async def test_everything_leaves_without_further_records(seconds: float, records: int) -> None:
    """What is left over of whole deliveries waits for its time, not for the next commit."""
    opened = await spool.memory.open_spool(settings=SpoolSettings(hold=0), clock=MovedClock())
    linger = Linger(opened.log, AI_TELEMETRY, seconds=seconds, max_records=10)
    await add(opened.log, *[call(number) for number in range(records)])

    steps = []
    async with asyncio.timeout(60):
        async for below in linger.changes():
            steps.append(below)
            if below == records + 1:
                break

    whole = records // 10 * 10
    assert steps[-2:] == ([whole + 1, records + 1] if seconds and 0 < whole < records else [records + 1])
    await opened.close()
