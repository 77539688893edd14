"""Parties take turns by the time that their work has used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from spool.turns.fair_turns import (
    HEAVY_S,
    LITTLE_S,
    QUIET_S,
    STEP_S,
    FairTurnParty,
    FairTurnRequest,
    FairTurnScheduler,
    current_work,
    pause_for_others,
    run_in_background,
)
from tests.waiting import awaited, limited


def parties(scheduler: FairTurnScheduler, **used_s: float) -> list[FairTurnParty]:
    found = []
    for name, seconds in used_s.items():
        found.append(scheduler.find_or_add_party(name))
        found[-1].charge_time(seconds)
    return found


async def work(scheduler: FairTurnScheduler, name: str, steps: int, order: list[str]) -> None:
    with scheduler.new_request(name) as one:
        await one.set_party_and_wait_for_turn()
        for _ in range(steps):
            order.append(name)
            await pause_for_others()


async def passes_until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until the condition holds."""
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("100 passes did not help")


async def test_single_party_works_without_waiting() -> None:
    """A single party's work neither waits nor is scheduled."""
    turns, order = FairTurnScheduler(), list[str]()
    turns.find_or_add_party("busy").charge_time(100.0)
    await awaited(work(turns, "busy", 3, order))
    assert order == ["busy"] * 3
    assert turns.are_shared is False


@pytest.mark.parametrize(("commits", "are_shared"), [(True, True), (False, False)])
async def test_who_had_something_to_commit_is_there_between_requests(commits: bool, are_shared: bool) -> None:
    """
    A sender counts as present for a while after a commit. Meanwhile a party that reads takes short steps, so
    that the sender's next request soon gets a turn.
    """
    now = 0.0
    turns = FairTurnScheduler(lambda: now)
    sender = turns.find_or_add_party("sender")
    sender.charge_time(LITTLE_S / 2)
    if commits:
        turns.note_submission(sender)
    now = 1.0
    turns.find_or_add_party("reads").charge_time(100.0)
    now = 2.0
    turns.find_or_add_party("reads")
    assert are_shared == turns.are_shared


async def test_many_parties_that_used_little_wait_for_nobody() -> None:
    """
    Requests under 200 keys start at once in their order of arrival, because each key has used little time. It
    does not matter that some keys used more than others.
    """
    turns, begun = FairTurnScheduler(), list[str]()
    names = [f"key {number}" for number in range(200)]
    parties(turns, **{name: 0.0005 * number for number, name in enumerate(names)})

    async def request(name: str) -> None:
        with turns.new_request(name) as one:
            await one.set_party_and_wait_for_turn()
            begun.append(name)
            await pause_for_others()

    requests = [asyncio.create_task(request(name)) for name in names]
    await asyncio.sleep(0)
    assert names == begun
    await asyncio.gather(*requests)


@pytest.mark.proves("one key floods")
@pytest.mark.proves("One sender locks out all others")
async def test_who_used_less_is_done_first() -> None:
    """A short request of one party is done before the earlier long requests of another."""
    turns, order = FairTurnScheduler(), list[str]()
    parties(turns, busy=10.0, small=0.0)
    busy = [asyncio.create_task(work(turns, "busy", 40, order)) for _ in range(8)]
    await asyncio.sleep(0)
    await work(turns, "small", 3, order)
    between = order.count("busy")
    await asyncio.gather(*busy)
    assert between < 3 * 8
    assert order.count("busy") == 320
    assert order.count("small") == 3


async def test_suspended_request_pays_for_the_wait_of_others() -> None:
    """If a request is suspended, its party pays for the time for which others waited."""
    turns, order = FairTurnScheduler(), list[str]()
    _, slow = parties(turns, busy=HEAVY_S, slow=0.0)
    is_over = asyncio.Event()

    async def stand() -> None:
        with turns.new_request("slow") as one:
            await one.set_party_and_wait_for_turn()
            await is_over.wait()

    standing = asyncio.create_task(stand())
    await asyncio.sleep(0)
    await awaited(work(turns, "busy", 50, order))
    is_over.set()
    await standing
    assert 50 == len(order)
    assert slow.used > 0


@pytest.mark.parametrize(("used_s", "first"), [(0.1, "request"), (5.0, "background")])
async def test_what_is_done_for_nobody_waits_for_who_used_little(used_s: float, first: str) -> None:
    """
    Background work waits while a party that used little time has requests. It does not wait for a party that
    used much, because the data of such a party must still be counted.
    """
    turns, order = FairTurnScheduler(lambda: 1000.0), list[str]()
    parties(turns, one=used_s, other=100.0)
    steps = 5

    async def count() -> None:
        for _ in range(steps):
            await pause_for_others()
            order.append("background")

    with turns.new_request("other") as other, turns.new_request("one") as one:
        await other.set_party_and_wait_for_turn()
        await one.set_party_and_wait_for_turn()
        counting = asyncio.create_task(run_in_background(turns, count()))
        for _ in range(steps):
            await one.pause_for_others()
            order.append("request")
    await awaited(counting)
    assert steps == order.count("background") == order.count("request")
    assert (first == "request") == (["request"] * steps == order[:steps])
    assert current_work() is None


async def test_the_thread_is_given_to_who_used_least() -> None:
    """
    The thread goes to the party that used least, whatever the order of arrival. Its holder learns that
    another party waits.
    """
    turns = FairTurnScheduler()
    first, second, third = parties(turns, first=3.0, second=2.0, third=1.0)
    order: list[str] = []
    all_asked = asyncio.Event()

    async def use(party: FairTurnParty) -> None:
        async with turns.hold_long_job_thread(party):
            order.append(party.name)
            await all_asked.wait()

    uses = []
    for party in (first, second, third):
        uses.append(asyncio.create_task(use(party)))
        await asyncio.sleep(0)
    assert turns.is_wanted
    all_asked.set()
    await asyncio.gather(*uses)
    assert ["first", "third", "second"] == order
    assert turns.aside is None
    assert turns.is_wanted is False


async def test_who_gives_up_waiting_leaves_the_turn_to_others() -> None:
    """
    If a party is cancelled while it waits for the thread or for its turn, the others still get their turns.
    """
    turns = FairTurnScheduler()
    first, second = parties(turns, first=3.0, second=2.0)
    async with turns.hold_long_job_thread(first):
        waiting = asyncio.create_task(turns.hold_long_job_thread(second).__aenter__())
        await asyncio.sleep(0)
        assert turns.is_wanted
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert turns.aside is None
    async with limited(), turns.hold_long_job_thread(second):
        assert turns.aside is second


async def test_each_step_is_charged_to_whose_request_it_is() -> None:
    """
    Time that a request used before its key was known is charged to the key as well. A step returns the result
    or the error of its job.
    """
    turns = FairTurnScheduler()

    async def job(one: FairTurnRequest) -> str:
        assert current_work() is one
        sum(range(100_000))
        await one.set_party_and_wait_for_turn("key a")
        await asyncio.sleep(0)
        return "done"

    with turns.new_request("address b") as one:
        assert "done" == await one.run_and_charge_time_to_party(job(one))
    assert turns.find_or_add_party("key a").used > 0
    assert 0 == turns.find_or_add_party("address b").used
    assert current_work() is None
    assert turns.find_or_add_party("key a").in_hand == 0

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("the job's own")

    with turns.new_request("address b") as one, pytest.raises(ValueError, match="own"):
        await run(one, failing())


async def run(one: FairTurnRequest, job: Coroutine[Any, Any, None]) -> None:
    await one.run_and_charge_time_to_party(job)


async def test_a_turn_is_given_back_for_a_request_that_came_with_it() -> None:
    """
    A party gets a turn, and in the same pass of the event loop a request of a party that used less starts.
    The new request is done first.
    """
    turns, order = FairTurnScheduler(), list[str]()
    parties(turns, busy=10.0, small=0.0)
    loop = asyncio.get_running_loop()
    with turns.new_request("other") as other:
        await (
            other.set_party_and_wait_for_turn()
        )  # this request runs first, so that the busy party waits for its turn
        busy = asyncio.create_task(work(turns, "busy", 2, order))
        await passes_until(lambda: bool(turns.find_or_add_party("busy").waiting))
    await passes_until(lambda: not turns.find_or_add_party("busy").waiting)
    small = loop.create_task(work(turns, "small", 1, order))
    await asyncio.gather(busy, small)
    assert order == ["small", "busy", "busy"]


async def test_party_counts_as_heavy_only_while_others_share() -> None:
    """
    A party that used much counts as heavy only while others share the turns. It is looked up by name, because
    a connection's own copy may be outdated.
    """
    turns = FairTurnScheduler()
    busy, _ = parties(turns, busy=10.0, small=0.0)
    assert turns.find_party_that_must_wait("busy") is None
    turns.are_shared = True
    assert (busy, None, None) == tuple(map(turns.find_party_that_must_wait, ("busy", "small", "gone")))


async def test_jobs_of_who_used_much_are_spread_over_passes() -> None:
    """
    Jobs of a party that used much are spread over passes of the event loop. Each pass runs as many as their
    steps allow, and a request of a party that used less runs in between.
    """
    turns, order = FairTurnScheduler(), list[str]()
    busy, _ = parties(turns, busy=10.0, small=0.0)
    busy.step_s = STEP_S / 2
    turns.are_shared = True
    for _ in range(20):
        turns.call_in_turn(busy, lambda: order.append("job"))
    assert [] == order
    await passes_until(lambda: bool(order))
    assert 2 == len(order)
    await work(turns, "small", 1, order)
    await passes_until(lambda: order.count("job") == 20)
    assert order.index("small") < 10


async def test_a_check_waits_while_there_are_no_requests() -> None:
    """
    `activity` returns at once while a request is pending, and until a second after the last one. Then it waits for
    the next request, or for the time that its caller states.
    """
    now = 100.0
    turns = FairTurnScheduler(lambda: now)
    await turns.wait_for_requests(max_wait_s=0.0)  # without a limit, this call would wait for ever
    check = asyncio.create_task(turns.wait_for_requests())
    await asyncio.sleep(0)
    assert not check.done()
    with turns.new_request("a key") as request:
        await request.set_party_and_wait_for_turn()
        await awaited(check)
        now += 50.0
        await awaited(turns.wait_for_requests())
        turns.find_or_add_party("another")
    now += QUIET_S / 2
    await awaited(turns.wait_for_requests())
    now += QUIET_S
    checks = [asyncio.create_task(turns.wait_for_requests()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(check.done() for check in checks)
    turns.find_or_add_party("a key")
    await awaited(asyncio.gather(*checks))
