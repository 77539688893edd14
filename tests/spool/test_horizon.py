"""The watermark between open and closed records."""

from __future__ import annotations

import asyncio

from spool.log.watermarks import LogWatermarks
from spool.record import AI_TELEMETRY, USAGE_EVENTS
from tests.moved_clock import MovedClock
from tests.waiting import limited


def test_records_of_a_running_commit_are_shown_only_afterwards() -> None:
    """Records that a running commit may still change are not shown before the commit ends."""
    clock = MovedClock()
    horizon = LogWatermarks(hold_s=10, clock=clock)
    horizon.pause_watermarks()
    horizon.resume_watermarks_after_commit({AI_TELEMETRY: 5})
    assert {} == horizon.pause_watermarks()
    clock.move(20)
    assert 1 == horizon.lowest_open_number(AI_TELEMETRY)
    horizon.resume_watermarks_after_commit()
    assert 5 == horizon.lowest_open_number(AI_TELEMETRY)


def test_a_failed_commit_opens_nothing() -> None:
    """A commit without numbers opens and closes nothing."""
    horizon = LogWatermarks(hold_s=0, clock=MovedClock())
    horizon.set_watermarks_at_start({AI_TELEMETRY: 3})
    horizon.pause_watermarks()
    horizon.resume_watermarks_after_commit()
    assert 3 == horizon.lowest_open_number(AI_TELEMETRY)


class EveryLookASecond:
    """A clock that advances at each read."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        self.passed += 1
        return self.passed


def test_a_commit_closes_in_all_topics_at_once() -> None:
    """
    If the hold ends while the topics are read, the records of a commit are either open in all topics or closed in
    all topics.
    """
    horizon = LogWatermarks(hold_s=4, clock=EveryLookASecond())
    horizon.set_watermarks_at_start({AI_TELEMETRY: 1, USAGE_EVENTS: 1})
    horizon.pause_watermarks()
    horizon.resume_watermarks_after_commit({AI_TELEMETRY: 11, USAGE_EVENTS: 6})
    answers = [horizon.lowest_open_number_by_topic() for _ in range(8)]
    opened, closed = {AI_TELEMETRY: 1, USAGE_EVENTS: 1}, {AI_TELEMETRY: 11, USAGE_EVENTS: 6}
    assert answers == sorted(answers, key=lambda answer: answer == closed)
    assert {AI_TELEMETRY: 1, USAGE_EVENTS: 1} == answers[0]
    assert all(answer in (opened, closed) for answer in answers)
    assert closed == answers[-1]


async def test_a_busy_log_wakes_its_readers_in_steps() -> None:
    """Hundreds of commits wake a reader only from time to time, and the reader misses none."""
    clock = MovedClock()
    horizon = LogWatermarks(hold_s=10, clock=clock)
    seen: list[int] = []
    has_all = asyncio.Event()

    async def read() -> None:
        async for closed in horizon.watermark_changes(AI_TELEMETRY):
            seen.append(closed)
            if closed == 501:
                has_all.set()

    reader = asyncio.create_task(read())
    for number in range(2, 502):
        horizon.pause_watermarks()
        clock.move(1)
        horizon.resume_watermarks_after_commit({AI_TELEMETRY: number})
        await asyncio.sleep(0)
    assert len(seen) < 250
    clock.move(11)
    async with limited():
        await has_all.wait()
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
