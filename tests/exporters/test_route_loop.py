"""The route loop, step by step over a spool in memory. Answers are scripted, and the test moves the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from exporters.errors import (
    DeliveryTooLarge,
    Misconfigured,
    OutcomeUnknown,
    Rejected,
    Retryable,
    SendError,
    SplitRequired,
)
from exporters.pace import ANOTHER_SUSPECT_S, MAX_SUSPECTS, Backoff, RouteThrottle
from exporters.route_loop import FAULTS, RouteLoop
from spool.deliveries.values import Delivery, Settlement
from spool.errors import SpoolUnavailable
from spool.log.values import LogEntry
from tests.exporters.capture import Capture
from tests.exporters.spools import ROUTE, SPEC, Spooled, StoppedClock, calls, record_id, spooled
from tests.rounds import examples

DOWN = Retryable("no answer", answered=False, ambiguous=True)
BUSY = Retryable("503", status=503)
BAD = Rejected("400 bad", status=400)
LARGE = DeliveryTooLarge("413", status=413)
FORBIDDEN = Misconfigured("403", status=403)


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
async def spool(tmp_path: Path, clock: StoppedClock) -> AsyncIterator[Spooled]:
    async with spooled("memory", tmp_path, clock) as spool:
        await spool.deliveries.set_routes([SPEC])
        yield spool


def route_of(spool: Spooled, exporter: Capture) -> RouteLoop:
    return RouteLoop(
        SPEC,
        exporter,
        deliveries=spool.deliveries,
        record_log=spool.log,
        clock=spool.clock,
        backoff=Backoff(),
    )


def spans(exporter: Capture) -> list[tuple[int, int]]:
    return [(delivery.first, delivery.last) for delivery in exporter.deliveries]


async def test_nothing_due_is_said(spool: Spooled) -> None:
    exporter = Capture()
    assert not await route_of(spool, exporter).forward_one_delivery()
    assert [] == exporter.deliveries


async def test_a_failed_delivery_does_not_hold_the_next(spool: Spooled, clock: StoppedClock) -> None:
    """
    After one failure the next delivery is tried at once. The failed one is retried unchanged when it is due.
    """
    await spool.add(calls(1, 20))
    exporter = Capture(answers=[DOWN, None, None], max_records=10)
    route = route_of(spool, exporter)
    assert [True, True, False] == [await route.forward_one_delivery() for _ in range(3)]
    clock.move(2)
    assert await route.forward_one_delivery()
    assert [(1, 10), (11, 20), (1, 10)] == spans(exporter)
    assert exporter.deliveries[0].idempotency_key == exporter.deliveries[2].idempotency_key
    assert {"delivered": 20} == await spool.terms()


async def test_a_step_of_the_wall_clock_delays_nobody(spool: Spooled, clock: StoppedClock) -> None:
    """If the wall clock is set back by a day, a delivery that waits two seconds still waits two seconds."""
    await spool.add(calls(1, 10))
    route = route_of(spool, Capture(answers=[DOWN]))
    await route.forward_one_delivery()
    clock.at -= 86_400
    assert not await route.forward_one_delivery()
    clock.move(2)
    assert await route.forward_one_delivery()
    assert {"delivered": 10} == await spool.terms()


async def test_a_fault_of_our_own_is_a_retry(spool: Spooled, caplog: pytest.LogCaptureFixture) -> None:
    """If an exporter fails inside, the delivery is retried under its key, and the fault is logged."""

    class Broken(Capture):
        async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
            raise KeyError("a secret value")

    await spool.add(calls(1, 10))
    assert await route_of(spool, Broken()).forward_one_delivery()
    assert "internal error in a delivery" in caplog.text
    assert {"queued": 10} == await spool.terms()


async def test_a_fault_that_repeats_parks_the_route(spool: Spooled, clock: StoppedClock) -> None:
    """
    A repeated fault is shown, nothing is lost, other deliveries still pass, and the route recovers when
    the fault ends.
    """
    broken = {"is": True}

    class Broken(Capture):
        async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
            if delivery.first == 1 and broken["is"]:
                raise ValueError("a secret value")
            return await super().send(delivery, entries)

    await spool.add(calls(1, 10))
    route = route_of(spool, Broken(max_records=10))
    shown = []
    for _ in range(FAULTS):
        await route.forward_one_delivery()
        clock.move(30)
        shown.append(((await spool.state()).state, (await spool.state()).reason))
    assert ("parked", "fault: ValueError, repeatedly: see the log of Tollhouse") == shown[-1]
    assert ["running"] * (FAULTS - 1) == [state for state, _ in shown[:-1]]
    await spool.add(calls(11, 20))
    clock.move(30)
    assert await route.forward_one_delivery()
    assert (await spool.state()).state == "running"
    assert (await spool.terms())["delivered"] == 10
    broken["is"] = False
    clock.move(120)
    assert await route.forward_one_delivery()
    assert "running" == (await spool.state()).state
    assert 20 == (await spool.terms())["delivered"]


async def test_a_cancelled_send_settles_nothing(spool: Spooled) -> None:
    """
    A cancelled delivery is neither settled nor retried. After the next declaration it is due again, marked
    as possibly accepted.
    """
    sending = asyncio.Event()

    class Slow(Capture):
        async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
            self.deliveries.append(delivery)
            sending.set()
            await asyncio.Event().wait()
            raise AssertionError

    await spool.add(calls(1, 10))
    slow = Slow()
    task = asyncio.create_task(route_of(spool, slow).forward_one_delivery())
    await sending.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await spool.deliveries.set_routes([SPEC])
    exporter = Capture()
    assert await route_of(spool, exporter).forward_one_delivery()
    (before,), (after,) = slow.deliveries, exporter.deliveries
    assert replace(before, ambiguous=True, fence=after.fence) == after


async def test_delivery_claimed_by_another_process_is_not_sent(spool: Spooled) -> None:
    """
    If another process has taken over the delivery, storing the mark fails before the first byte is written.
    """

    class Marking(Capture):
        async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
            await spool.deliveries.set_routes([SPEC])
            assert await spool.deliveries.take_due_delivery(ROUTE, now=spool.clock.now(), max_records=10)
            return "7 42"

    await spool.add(calls(1, 10))
    exporter = Marking()
    assert await route_of(spool, exporter).forward_one_delivery()
    assert exporter.deliveries == []
    assert spool.deliveries.fenced == 1
    assert await spool.terms() == {"queued": 10}


async def test_what_must_not_be_sent_twice_is_left_to_the_operator(spool: Spooled) -> None:
    """A delivery with an unknown outcome settles as unknown."""
    await spool.add(calls(1, 3))
    await route_of(spool, Capture(answers=[OutcomeUnknown("no answer")])).forward_one_delivery()
    assert {"unknown": 3} == await spool.terms()


async def test_parts_that_must_go_apart_are_divided_where_the_exporter_says(spool: Spooled) -> None:
    """
    If parts of a delivery must be sent separately, the second part starts at the number that the exporter
    names. Nothing counts as rejected.
    """
    await spool.add(calls(1, 10))
    exporter = Capture(answers=[SplitRequired("two kinds", second_first_number=4)])
    route = route_of(spool, exporter)
    while await route.forward_one_delivery():
        pass
    assert [(1, 10), (1, 3), (4, 10)] == spans(exporter)


async def test_a_record_alone_is_refused_twice_before_it_is_set_aside(
    spool: Spooled, clock: StoppedClock
) -> None:
    """A single record is rejected twice before it is set aside, even if the route accepts other records."""
    await spool.add(calls(1, 2))
    exporter = Capture(answers=[BAD, None, BAD])
    route = route_of(spool, exporter)
    for _ in range(3):
        await route.forward_one_delivery()
    assert [(1, 2), (1, 1), (2, 2)] == spans(exporter)
    assert [] == list(await spool.deliveries.dead_letters())
    clock.move(4)
    await route.forward_one_delivery()
    assert {"delivered": 2} == await spool.terms()


class Picky(Capture):
    """An exporter that rejects every delivery with one of these records."""

    refused = frozenset(map(record_id, (3, 7)))

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        numbers = range(delivery.first, delivery.last + 1)
        if any(record_id(number) in self.refused for number in numbers):
            raise BAD
        return await super().send(delivery, entries)


async def test_a_route_with_all_its_dead_letters_parks_and_loses_none(
    spool: Spooled, clock: StoppedClock
) -> None:
    """
    At spool.max_dead_letters, the next rejected record stays queued with its reason. The route continues once
    there is space.
    """
    await spool.add(calls(1, 10))
    route = RouteLoop(
        SPEC,
        Picky(),
        deliveries=spool.deliveries,
        record_log=spool.log,
        clock=clock,
        backoff=Backoff(),
        max_dead_letters=1,
    )
    for _ in range(60):
        clock.move(61)
        await route.forward_one_delivery()
    state = await spool.state()
    assert state.state == "parked"
    assert state.dead == 1
    assert state.queued == 3
    assert "spool.max_dead_letters" in (state.reason or "")
    await spool.deliveries.discard_dead_letters(
        [letter.id for letter in await spool.deliveries.dead_letters()]
    )
    route.retry_now()
    for _ in range(10):
        clock.move(61)
        await route.forward_one_delivery()
    assert {"delivered": 8, "dead": 1, "discarded": 1} == await spool.terms()


async def test_a_refusing_route_tries_other_single_records(spool: Spooled, clock: StoppedClock) -> None:
    """
    After one rejection without any success, the route tries the newest records one at a time, and retries
    rejected ones when due.
    """
    await spool.add(calls(1, 1))
    exporter = Capture(answers=[BAD] * 4)
    route = route_of(spool, exporter)
    await route.forward_one_delivery()
    await spool.add(calls(2, 9))
    state = await spool.state()
    assert state.state == "refusing"
    assert state.reason == "400 bad"
    for _ in range(3):
        clock.move(60)
        await route.forward_one_delivery()
    assert [1, 1, 1, 1] == [delivery.count for delivery in exporter.deliveries]
    assert 4 == len({delivery.first for delivery in exporter.deliveries})
    clock.move(60)
    await route.forward_one_delivery()
    assert "running" == (await spool.state()).state


async def test_suspects_are_bounded_but_not_for_ever(clock: StoppedClock) -> None:
    """
    At most MAX_SUSPECTS single records are tried first, then one more every ten minutes, so a series of bad
    records cannot block the route.
    """
    throttle = RouteThrottle(clock, Backoff())
    throttle.note_record_rejection()
    assert MAX_SUSPECTS == throttle.max_suspect_deliveries()
    clock.move(10 * ANOTHER_SUSPECT_S)
    throttle.note_record_rejection()
    assert MAX_SUSPECTS + 10 == throttle.max_suspect_deliveries()


async def test_one_failure_closes_nothing_two_in_a_row_do(clock: StoppedClock) -> None:
    """
    Failures of one round count as one. After failures in two rounds in a row the route waits, and each
    further round makes the wait longer. A success ends the wait, unless the destination requested it.
    """
    throttle = RouteThrottle(clock, Backoff())
    began = throttle.round
    assert [False, False] == [
        throttle.note_failure_and_return_is_new_reason(began, "503", requested_wait_s=None) for _ in range(2)
    ]
    assert 0 == throttle.wait_s(0)
    assert throttle.wait_s(1) > 1e9
    assert throttle.note_failure_and_return_is_new_reason(throttle.round, "503", requested_wait_s=None)
    assert 1 <= throttle.wait_s(0) <= 2
    throttle.note_failure_and_return_is_new_reason(throttle.round, "503", requested_wait_s=100.0)
    assert throttle.note_success_and_check_recovery()
    assert [100, 100] == [throttle.wait_s(0), throttle.wait_s(1)]
    throttle.end_waits()
    assert [0, 0] == [throttle.wait_s(0), throttle.wait_s(1)]


async def test_the_newest_failure_is_the_reason_shown(spool: Spooled, clock: StoppedClock) -> None:
    """
    A single failure is not shown as the route's reason. After that, each different reason replaces the last
    one until a delivery passes.
    """
    await spool.add(calls(1, 1))
    answers = ["503 busy", "503 busy", "no answer", "no answer"]
    route = route_of(spool, Capture(answers=[Retryable(words) for words in answers]))
    shown = []
    for _ in range(5):
        await route.forward_one_delivery()
        shown.append((await spool.state()).reason)
        clock.move(600)
    assert [None, "503 busy", "no answer", "no answer", None] == shown


async def test_paused_route_continues_with_its_first_worker_only(clock: StoppedClock) -> None:
    """After the wait, only the first worker of a parked route continues."""
    throttle = RouteThrottle(clock, Backoff())
    throttle.pause_route(60)
    assert throttle.wait_s(0) == 60
    assert throttle.wait_s(1) > 1e9
    clock.move(60)
    assert 0 == throttle.wait_s(0)


async def test_paused_route_retries_every_minute(spool: Spooled, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A parked route retries every minute for as long as necessary. Once the key is accepted again, everything
    that waited is delivered.
    """
    waits: list[float] = []
    real = RouteThrottle.pause_route

    def park(throttle: RouteThrottle, seconds: float) -> None:
        waits.append(seconds)
        real(throttle, seconds)

    monkeypatch.setattr(RouteThrottle, "pause_route", park)
    await spool.add(calls(1, 10))
    route = route_of(spool, Capture(answers=[FORBIDDEN, FORBIDDEN, None]))
    states = []
    for _ in range(3):
        await route.forward_one_delivery()
        states.append((await spool.state()).state)
    assert states == ["parked", "parked", "running"]
    assert waits == [60.0, 60.0]
    assert {"delivered": 10} == await spool.terms()


class Choking(Capture):
    """An exporter that answers with an error to every request that contains one certain record."""

    def __init__(self, record: int, status: int) -> None:
        super().__init__()
        self.poison = record
        self.status = status

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        if delivery.first <= self.poison <= delivery.last:
            self.deliveries.append(delivery)
            raise Retryable(str(self.status), status=self.status)
        return await super().send(delivery, entries)


@pytest.mark.proves("one record that always fails")
@pytest.mark.parametrize(("status", "delivered"), [(500, 99), (503, 0)])
async def test_a_quiet_route_looks_for_the_record_that_is_answered_with_500(
    spool: Spooled, clock: StoppedClock, status: int, delivered: int
) -> None:
    """
    If no other delivery passes, only halving the batch can find the record that gets a 500. A 503 is about
    the service, so nothing is halved.
    """
    await spool.add(calls(1, 100))
    exporter = Choking(37, status)
    route = route_of(spool, exporter)
    for _ in range(60):
        await route.forward_one_delivery()
        clock.move(10)
    assert delivered == len(exporter.records)
    assert {"delivered": delivered, "queued": 100 - delivered} == {"delivered": 0, **await spool.terms()}
    for _ in range(12):
        clock.move(600)
        await route.forward_one_delivery()
    assert {"delivered": delivered, "queued": 100 - delivered} == {"delivered": 0, **await spool.terms()}


async def test_delivery_that_always_gets_500_does_not_block_others(
    spool: Spooled, clock: StoppedClock
) -> None:
    """
    The destination answers one record with 500, and later everything for hours. Both deliveries wait,
    and pass once the destination recovers.
    """

    class Ill(Choking):
        is_down = False

        async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
            if self.is_down:
                raise Retryable("500", status=500)
            return await super().send(delivery, entries)

    await spool.add(calls(1, 4))
    exporter = Ill(2, 500)
    route = route_of(spool, exporter)
    for _ in range(15):
        await route.forward_one_delivery()
        clock.move(10)
    assert {"delivered": 3, "queued": 1} == await spool.terms()
    exporter.is_down = True
    await spool.add(calls(5, 5))
    await route.forward_one_delivery()
    await route.forward_one_delivery()
    for _ in range(20):
        clock.move(3600)
        await route.forward_one_delivery()
    assert {"delivered": 3, "queued": 2} == await spool.terms()
    exporter.is_down, exporter.poison = False, 0
    for _ in range(4):
        clock.move(60)
        await route.forward_one_delivery()
    assert {"delivered": 5} == await spool.terms()


async def test_a_record_that_breaks_the_upstream_ends_as_stuck(spool: Spooled, clock: StoppedClock) -> None:
    """If one record gets 5xx while others pass, it is shown as stuck and never deleted."""
    route = route_of(spool, Choking(1, 500))
    for number in range(1, 41):
        await spool.add(calls(number, number))
        for _ in range(2):  # two turns, for the failing delivery and for a delivery that succeeds
            await route.forward_one_delivery()
        clock.move(600)
    state = await spool.state()
    assert state.stuck == 1
    assert state.dead == 0
    assert {"delivered": 39, "queued": 1} == await spool.terms()


ANSWERS: dict[str, SendError | None] = {
    "accepted": None,
    "down": DOWN,
    "busy": BUSY,
    "gateway": Retryable("502", status=502, ambiguous=True),
    "bad": BAD,
    "large": LARGE,
    "forbidden": FORBIDDEN,
}


class Partial(Capture):
    """An exporter that accepts all but one record of every batch of more than five."""

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        settlement = await super().send(delivery, entries)
        if delivery.count <= 5:
            return settlement
        return Settlement(delivered=settlement.delivered - 1, refused=1, words="one was odd")


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(sorted(ANSWERS)), max_size=60), st.integers(1, 40), st.integers(1, 15))
def test_accounting_balances_under_any_answers(answers: list[str], records: int, max_records: int) -> None:
    """After every answer each accepted number is in exactly one term. At the end none is queued."""

    async def run() -> None:
        clock = StoppedClock()
        async with spooled("memory", Path(), clock) as spool:
            await spool.deliveries.set_routes([SPEC])
            await spool.add(calls(1, records))
            exporter = Partial(answers=[ANSWERS[name] for name in answers], max_records=max_records)
            route = route_of(spool, exporter)
            for step in range(600):
                clock.move(60)
                busy = await route.forward_one_delivery()
                books = await spool.log.books()
                assert [] == list(books.imbalances)
                terms = books.routes[ROUTE]
                assert records == sum(terms.values())
                if not busy and step > len(answers):
                    break
            assert 0 == terms["queued"]
            arrived = [record.id for record in exporter.records]
            assert len(arrived) == len(set(arrived))
            dead = {letter.record.id for letter in await spool.deliveries.dead_letters()}
            assert {record_id(n) for n in range(1, records + 1)} == dead | set(arrived)

    asyncio.run(run())


async def test_a_delivery_does_not_stay_in_hand_when_the_storage_fails(
    spool: Spooled, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the storage fails just when a record is set aside, the record is sent again when due, and set aside then.
    """
    await spool.add(calls(1, 2))
    exporter = Capture(answers=[BAD, None, BAD, BAD, BAD])
    route = route_of(spool, exporter)
    for _ in range(3):
        await route.forward_one_delivery()
    clock.move(60)

    async def away() -> None:
        raise SpoolUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(spool.deliveries, "route_states", away)
        with pytest.raises(SpoolUnavailable):
            await route.forward_one_delivery()
    clock.move(60)
    assert await route.forward_one_delivery()
    assert {"delivered": 1, "dead": 1} == await spool.terms()
