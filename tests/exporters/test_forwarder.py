"""Routes over a spool in memory that wait for more records, are reconfigured while they send, and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from exporters import forwarder
from exporters.errors import Retryable
from exporters.exporter import RouteConfig
from exporters.forwarder import RouteForwarder
from exporters.route_loop import RouteLoop
from spool.deliveries.values import Delivery, Settlement
from spool.leases import LeaseTasks, SoleNode
from spool.log.values import LogEntry
from tests.exporters.capture import Capture
from tests.exporters.spools import ROUTE, SPEC, Spooled, StoppedClock, calls, spooled
from tests.loop_turns import until_all_wait
from tests.waiting import limited, until


class Gate(Capture):
    """An exporter that answers once the test opens it, and notes when it was closed."""

    def __init__(self, *, max_records: int = 5) -> None:
        super().__init__(max_records=max_records)
        self.sending, self.open, self.closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        self.sending.set()
        await self.open.wait()
        return await super().send(delivery, entries)

    async def close(self) -> None:
        self.closed.set()


def config(exporter: Capture, made_of: str, *, linger_s: float = 0.0) -> RouteConfig:
    return RouteConfig(spec=SPEC, compared_settings=made_of, exporter=exporter, linger_s=linger_s)


@asynccontextmanager
async def forwarding(tmp_path: Path, exporter: Capture) -> AsyncIterator[tuple[Spooled, RouteForwarder]]:
    async with spooled("memory", tmp_path, StoppedClock()) as spool:
        await spool.add(calls(1, 10))
        routes = RouteForwarder(spool.deliveries, spool.log, spool.clock, [config(exporter, "first")])
        await routes.start()
        try:
            async with limited():
                yield spool, routes
        finally:
            await routes.stop()


@asynccontextmanager
async def lingering(
    tmp_path: Path, exporter: Capture, *, linger_s: float
) -> AsyncIterator[tuple[Spooled, RouteForwarder]]:
    """Start a route over an empty spool. Its records wait `linger_s` for more."""
    async with spooled("memory", tmp_path, StoppedClock()) as spool, limited():
        configs = [config(exporter, "first", linger_s=linger_s)]
        routes = RouteForwarder(spool.deliveries, spool.log, spool.clock, configs)
        await routes.start()
        await until_all_wait()
        yield spool, routes


def spans(exporter: Capture) -> list[tuple[int, int]]:
    return [(delivery.first, delivery.last) for delivery in exporter.deliveries]


async def test_records_wait_for_others_and_a_stop_sends_them(tmp_path: Path) -> None:
    """
    Ten commits become one delivery. A stop sends waiting records instead of leaving them for the next start.
    """
    exporter = Capture()
    async with lingering(tmp_path, exporter, linger_s=3600) as (spool, routes):
        for number in range(1, 11):
            await spool.add(calls(number, number))
        await until_all_wait()
        assert [] == exporter.deliveries
        await routes.stop()
        assert [(1, 10)] == spans(exporter)
        assert {"delivered": 10} == await spool.terms()


async def test_a_whole_delivery_waits_for_nothing(tmp_path: Path) -> None:
    """A route sends a delivery at once when it is full. The remaining records wait for more."""
    exporter = Capture(max_records=4)
    async with lingering(tmp_path, exporter, linger_s=3600) as (spool, routes):
        await spool.add(calls(1, 10))
        await drained(spool, 8)
        await until_all_wait()
        assert [(1, 4), (5, 8)] == spans(exporter)
        await routes.stop()
        assert [(1, 4), (5, 8), (9, 10)] == spans(exporter)


@pytest.mark.parametrize("linger_s", [0.0, 0.1])
async def test_a_record_waits_no_longer_than_it_may(tmp_path: Path, linger_s: float) -> None:
    """A record is sent when its waiting time ends, even if no further record follows."""
    exporter = Capture()
    async with lingering(tmp_path, exporter, linger_s=linger_s) as (spool, routes):
        await spool.add(calls(1, 10))
        assert {"delivered": 10} == await drained(spool)
        await routes.stop()


async def test_a_stop_does_not_wait_for_a_silent_upstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery that gets no answer in time stays open."""
    monkeypatch.setattr(forwarder, "FLUSH_S", 0.5)
    silent = Gate()
    async with lingering(tmp_path, silent, linger_s=3600) as (spool, routes):
        await spool.add(calls(1, 3))
        await routes.stop()
        assert silent.sending.is_set()
        assert {"queued": 3} == await spool.terms()


async def test_stop_tries_an_unavailable_destination_once(tmp_path: Path) -> None:
    """If the destination accepts nothing during a stop, the route tries once, and the records stay queued."""
    exporter = Capture(answers=[Retryable("503", status=503)] * 9)
    async with lingering(tmp_path, exporter, linger_s=3600) as (spool, routes):
        await spool.add(calls(1, 3))
        await routes.stop()
        assert [(1, 3)] == spans(exporter)
        assert {"queued": 3} == await spool.terms()


async def drained(spool: Spooled, count: int = 10) -> dict[str, int]:
    async def terms() -> dict[str, int]:
        found = dict(await spool.terms())
        return found if found.get("delivered") == count else {}

    return await until(terms, f"{count} delivered")


async def test_what_is_being_sent_ends_as_it_began(tmp_path: Path) -> None:
    """
    The settings change while a delivery is in flight. This delivery settles under the earlier settings, the
    next one uses the new settings, and none becomes ambiguous.
    """
    first, second = Gate(), Capture(max_records=5)
    async with forwarding(tmp_path, first) as (spool, routes):
        await first.sending.wait()
        await routes.apply_routes_and_syncs([config(second, "second")], None)
        assert not first.closed.is_set()
        first.open.set()
        assert {"delivered": 10} == await drained(spool)
        assert [1, 6] == [first.deliveries[0].first, second.deliveries[0].first]
        (state,) = await spool.deliveries.route_states()
        assert 0 == state.ambiguous
        await first.closed.wait()


async def test_equal_settings_leave_a_route_alone(tmp_path: Path) -> None:
    """A route with equal settings keeps its connection open."""
    first, second = Gate(), Capture()
    async with forwarding(tmp_path, first) as (spool, routes):
        await first.sending.wait()
        await routes.apply_routes_and_syncs([config(second, "first")], None)
        first.open.set()
        assert {"delivered": 10} == await drained(spool)
        assert second.deliveries == []
        assert not first.closed.is_set()


async def test_a_route_that_went_finishes_and_begins_nothing(tmp_path: Path) -> None:
    """
    A removed route finishes its delivery and keeps its progress. If the route is added again, it continues
    after that delivery.
    """
    first, second = Gate(), Capture(max_records=5)
    async with forwarding(tmp_path, first) as (spool, routes):
        await first.sending.wait()
        await routes.apply_routes_and_syncs([], None)
        (state,) = await spool.deliveries.route_states()
        assert state.state == "orphaned"
        assert state.queued == 10
        await routes.apply_routes_and_syncs([config(second, "second")], None)
        await until_all_wait()
        assert [] == second.deliveries
        first.open.set()
        assert {"delivered": 10} == await drained(spool)
        assert [(ROUTE, 1), (ROUTE, 6)] == [
            (delivery.route, delivery.first) for delivery in (*first.deliveries, *second.deliveries)
        ]


async def test_a_route_that_ends_names_its_error_and_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the loop of one route costs no other route."""
    monkeypatch.setattr(forwarder, "AFTER_A_FAULT_S", 0.0)
    failures = 2
    failed = asyncio.Event()
    run = RouteLoop.run

    async def fail_at_first(loop: RouteLoop, state: str) -> None:
        nonlocal failures
        if loop.name == ROUTE and failures:
            failures -= 1
            raise RecursionError
        failed.set()
        await run(loop, state)

    monkeypatch.setattr(RouteLoop, "run", fail_at_first)
    async with forwarding(tmp_path, Capture()) as (spool, _):
        await failed.wait()
        (state,) = await spool.deliveries.route_states()
        assert ("parked", "an internal error; see the log: RecursionError") == (state.state, state.reason)
        assert {"delivered": 10} == await drained(spool)
        (state,) = await spool.deliveries.route_states()
        assert "running" == state.state


class Turns(LeaseTasks, SoleNode):
    """Leases that a test grants and revokes."""


async def test_a_route_sends_while_its_lease_is_held(tmp_path: Path) -> None:
    """
    A route waits for its lease, and finishes its delivery before another process gets the lease. Later the
    route continues where that process stopped.
    """
    leases, gate = Turns(), Gate()
    async with spooled("memory", tmp_path, StoppedClock()) as spool, limited():
        await spool.add(calls(1, 20))
        routes = RouteForwarder(
            spool.deliveries, spool.log, spool.clock, [config(gate, "first")], leases=leases
        )
        await routes.start()
        await until_all_wait()
        assert not gate.sending.is_set()
        leases.gain_lease(ROUTE)
        await gate.sending.wait()
        ending = asyncio.create_task(leases.finish_tasks_and_wait(ROUTE))
        await until_all_wait()
        assert not ending.done()
        gate.open.set()
        await ending
        assert {"delivered": 5, "queued": 15} == await spool.terms()
        leases.gain_lease(ROUTE)
        assert {"delivered": 20} == await drained(spool, 20)
        leases.lose_lease(ROUTE)
        await spool.add(calls(21, 25))
        await routes.stop()
        assert {"delivered": 20, "queued": 5} == await spool.terms()


async def test_a_route_that_waits_for_its_lease_is_exchanged(tmp_path: Path) -> None:
    """
    A route without its lease sends nothing, so it can be replaced without a wait. The new route starts when
    it gets the lease.
    """
    leases, second = Turns(), Capture(max_records=5)
    first = Gate()
    async with spooled("memory", tmp_path, StoppedClock()) as spool, limited():
        await spool.add(calls(1, 10))
        routes = RouteForwarder(
            spool.deliveries, spool.log, spool.clock, [config(first, "first")], leases=leases
        )
        await routes.start()
        await routes.apply_routes_and_syncs([config(second, "second")], None)
        await first.closed.wait()
        leases.gain_lease(ROUTE)
        assert {"delivered": 10} == await drained(spool)
        await routes.stop()
        assert [1, 6] == [delivery.first for delivery in second.deliveries]
