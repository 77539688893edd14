"""Workers of a route are woken one by one: as many as have work, and one more that finds none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from exporters.pace import RestingWorkers
from exporters.route_loop import RouteLoop
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from tests.exporters.capture import Capture
from tests.exporters.spools import SPEC, Spooled, StoppedClock, calls, spooled
from tests.waiting import until

WORKERS = 4


class _Together(Capture):
    """An exporter that answers once `count` deliveries have arrived at the same time."""

    in_flight = WORKERS

    def __init__(self, count: int) -> None:
        super().__init__(max_records=1)
        self._barrier = asyncio.Barrier(count)

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        await self._barrier.wait()
        return await super().send(delivery, entries)


@asynccontextmanager
async def _running(place: Path, exporter: Capture) -> AsyncIterator[tuple[Spooled, list[str]]]:
    """
    Yield a spool with a running route, and a list of the queries that its workers made after all of them had
    gone to rest.
    """
    async with spooled("memory", place, StoppedClock()) as spool:
        await spool.deliveries.set_routes([SPEC])
        asked: list[str] = []
        due = spool.deliveries.take_due_delivery

        async def counted(*given: object, **named: object) -> Delivery | None:
            asked.append("due")
            return await due(*given, **named)  # type: ignore[arg-type]

        spool.deliveries.take_due_delivery = counted  # type: ignore[method-assign]
        route = RouteLoop(
            SPEC, exporter, deliveries=spool.deliveries, record_log=spool.log, clock=spool.clock
        )
        task = asyncio.create_task(route.run())
        await until(lambda: len(asked) >= WORKERS)
        await _steps()
        asked.clear()
        yield spool, asked
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _steps() -> None:
    """Run the event loop until every task waits."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_one_record_wakes_a_worker_and_the_next(tmp_path: Path) -> None:
    """One record wakes two workers: the first sends it, the second finds nothing, and the others rest."""
    exporter = _Together(1)
    async with _running(tmp_path, exporter) as (spool, asked):
        await spool.add(calls(1, 1))
        await until(lambda: len(exporter.records) == 1)
        await _steps()
        assert 3 == len(asked)


async def test_all_send_at_once_when_there_is_enough(tmp_path: Path) -> None:
    """Each worker that finds work wakes another, so all deliveries are sent before the first answer."""
    exporter = _Together(WORKERS)
    async with _running(tmp_path, exporter) as (spool, _):
        await spool.add(calls(1, WORKERS))
        await until(lambda: len(exporter.records) == WORKERS)


async def test_who_may_not_work_is_not_woken_in_place_of_who_may() -> None:
    """If only one worker may send, new records wake that worker and no other."""
    resting = RestingWorkers(lambda place: place == 0)
    workers = [
        asyncio.create_task(resting.rest_until_woken(place, 60, missed_wakeups=resting.missed_wakeups))
        for place in (1, 0)
    ]
    await _steps()
    resting.wake_one()
    await workers[1]
    assert not workers[0].done()
    resting.wake_all()
    await workers[0]


async def test_news_are_not_missed_by_who_looks_just_now() -> None:
    """If news arrive between a worker's query and its rest, the worker does not rest."""
    resting = RestingWorkers(lambda place: True)
    told = resting.missed_wakeups
    resting.wake_one()
    await resting.rest_until_woken(0, 60, missed_wakeups=told)
