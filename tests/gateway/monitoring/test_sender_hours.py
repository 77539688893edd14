"""Arrivals of a process are stored, also over restarts, for several gateways, and after the storage was away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
import pytest_asyncio

from gateway.money.insights.rhythms import MOST_SHOWN, sender_gauges
from gateway.monitoring.sender_hours import READ_EVERY_S, SenderHoursTracker
from gateway.monitoring.snapshot import SenderGauges
from spool.errors import SpoolUnavailable
from spool.registry.registry import Registry
from spool.registry.tables.sender_hours import (
    HOUR_S,
    RUNNING,
    Arrivals,
    SenderHours,
    SenderHoursTable,
    SourceAndKey,
    hours_of_new_sender,
)
from spool.sqlite.in_memory import new_in_memory_registry
from tests.moved_clock import MovedClock

NOW = 1_790_000_000.0 // HOUR_S * HOUR_S


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock(NOW)


@pytest_asyncio.fixture
async def registry(clock: MovedClock) -> AsyncIterator[Registry]:
    registry = await Registry.open(new_in_memory_registry(), secret=b"s" * 32, clock=clock)
    yield registry
    await registry.close()


def seen(hours: Sequence[SenderHours]) -> Mapping[SourceAndKey, int]:
    return {(each.source, each.key): each.hours for each in hours}


async def test_two_gateways_and_a_restart(registry: Registry, clock: MovedClock) -> None:
    """A gateway sees its own arrivals at once, and those of another gateway after it stored and this one read them."""
    first, second = (SenderHoursTracker(registry.sender_hours, clock) for _ in range(2))
    first.note_arrival("prod", ["kong"])
    assert {("kong", "prod"): 1} == seen(await first.current_hours())
    assert {} == seen(await second.current_hours())
    clock.move(HOUR_S)
    second.note_arrival("prod", ["kong", "otel"])
    running = asyncio.create_task(first.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert {("kong", "prod"): 0b11, ("otel", "prod"): 1, RUNNING: 1} == seen(await second.current_hours())
    await second.store_arrivals()
    clock.move(READ_EVERY_S)
    restarted = SenderHoursTracker(registry.sender_hours, clock)
    assert seen(await second.current_hours()) == seen(await restarted.current_hours())


async def test_little_news_waits(registry: Registry, clock: MovedClock) -> None:
    """A busy sender writes one row an hour and one row in ten minutes, not one for each request."""
    table = Counted(registry.sender_hours)
    kept = SenderHoursTracker(table, clock)
    for _ in range(60):
        kept.note_arrival("prod", ["kong"])
        await kept.store_arrivals(stores_all=False)
        clock.move(60.0)
    assert 6 == table.writes
    assert NOW + 59 * 60 == (await kept.current_hours())[0].last


async def test_arrivals_are_stored_after_an_outage(registry: Registry, clock: MovedClock) -> None:
    table = Counted(registry.sender_hours)
    kept = SenderHoursTracker(table, clock)
    kept.note_arrival("prod", ["kong"])
    table.is_away = True
    with pytest.raises(SpoolUnavailable):
        await kept.store_arrivals()
    table.is_away = False
    await kept.store_arrivals()
    assert {("kong", "prod"): 1} == seen(await registry.sender_hours.all())


class Counted(SenderHoursTable):
    is_away = False
    writes = 0

    def __init__(self, table: SenderHoursTable) -> None:
        self._table = table

    async def add(self, arrivals: Mapping[SourceAndKey, Arrivals], *, now: float) -> Sequence[SenderHours]:
        if self.is_away:
            raise SpoolUnavailable("the database is away")
        self.writes += 1
        return await self._table.add(arrivals, now=now)

    async def all(self) -> Sequence[SenderHours]:
        return await self._table.all()


def test_names_in_metrics_are_bounded() -> None:
    """`/metrics` shows the sources that sent last, and only keys that exist."""
    hours = [
        hours_of_new_sender((f"s{n}", f"k{n}"), {int(NOW // HOUR_S): NOW - n}) for n in range(MOST_SHOWN + 9)
    ]
    shown = sender_gauges(hours, [], now=NOW)
    assert MOST_SHOWN == len(shown.sources)
    assert NOW == shown.sources["s0"]
    assert SenderGauges(sources=shown.sources, keys={}, stopped=[]) == shown
