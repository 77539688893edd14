"""The contract of the deliveries, held by every implementation of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from spool.deliveries.rules import MAX_WAITING, STUCK_AFTER
from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.errors import NotAllowed, NotThere
from spool.record import AI_TELEMETRY, USAGE_EVENTS
from tests.exporters.house import ROUTE, SPEC, Spooled, StoppedClock, call, calls, spooled


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest_asyncio.fixture(params=["sqlite", "memory"])
async def house(request: pytest.FixtureRequest, tmp_path: Path, clock: StoppedClock) -> AsyncIterator[Spooled]:
    async with spooled(request.param, tmp_path, clock) as house:
        yield house


async def due(house: Spooled, *, max_records: int = 100, route: str = ROUTE) -> Delivery | None:
    return await house.deliveries.due(route, now=house.clock.now(), max_records=max_records)


async def taken(house: Spooled, *, max_records: int = 100, route: str = ROUTE) -> Delivery:
    delivery = await due(house, max_records=max_records, route=route)
    assert delivery is not None
    return delivery


async def deliver(house: Spooled, delivery: Delivery) -> None:
    await house.deliveries.settle(delivery, Settlement(delivered=delivery.count))


def span(delivery: Delivery | None) -> tuple[int, int] | None:
    return None if delivery is None else (delivery.first, delivery.last)


@pytest.mark.asyncio
async def test_deliveries_are_cut_oldest_first(house: Spooled) -> None:
    """A route gets its backlog in order, at most max_records at a time, and nothing twice while it is in hand."""
    await house.add(calls(1, 25))
    await house.deliveries.declare([SPEC])
    spans = [span(await due(house, max_records=10)) for _ in range(4)]
    assert [(1, 10), (11, 20), (21, 25), None] == spans


@pytest.mark.asyncio
async def test_a_new_record_is_due_at_once(house: Spooled) -> None:
    """A record that closes while a route is idle does not wait for others."""
    await house.deliveries.declare([SPEC])
    assert None is await due(house)
    await house.add(calls(1, 1))
    assert (1, 1) == span(await due(house))


@pytest.mark.asyncio
async def test_settled_numbers_are_counted_by_where_they_went(house: Spooled) -> None:
    """A settlement moves every number of its delivery into exactly one term, and the refused ones are listed."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    settlement = Settlement(delivered=6, refused=2, shadow=1, damaged=1, words="two were too old")
    await house.deliveries.settle(await taken(house), settlement)
    assert {"delivered": 6, "refused_upstream": 2, "shadow": 1, "damaged": 1} == await house.terms()
    (refusal,) = await house.deliveries.partial_refusals(route=ROUTE)
    assert (1, 10, 2, "two were too old") == (refusal.first, refusal.last, refusal.count, refusal.words)
    assert [] == list((await house.log.books()).imbalances)


@pytest.mark.asyncio
async def test_a_settlement_that_does_not_add_up_is_refused(house: Spooled) -> None:
    """A number can neither vanish nor double in a settlement."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    delivery = await taken(house)
    with pytest.raises(ValueError, match="does not add up"):
        await house.deliveries.settle(delivery, Settlement(delivered=9))


@pytest.mark.asyncio
async def test_a_repeat_after_no_answer_is_the_same_request(house: Spooled, clock: StoppedClock) -> None:
    """The same numbers under the same key, not before its time."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    first = await taken(house)
    await house.deliveries.retry(first, reason="no answer", not_before=clock.now() + 5, new_key=False)
    assert None is await due(house)
    assert clock.now() + 5 == await house.deliveries.next_due_at(ROUTE)
    clock.move(5)
    again = await taken(house)
    assert (first.first, first.last, first.idempotency_key) == (again.first, again.last, again.idempotency_key)
    assert (1, "no answer") == (again.attempts, again.last_error)


@pytest.mark.asyncio
async def test_an_answer_spends_the_key(house: Spooled, clock: StoppedClock) -> None:
    """A repeat after an answer has a key of its own."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    first = await taken(house)
    await house.deliveries.retry(first, reason="503", not_before=0, new_key=True, server_error=True)
    again = await taken(house)
    assert first.id == again.id
    assert first.idempotency_key != again.idempotency_key


@pytest.mark.asyncio
async def test_a_gateway_error_leaves_a_doubt_under_its_key_only(house: Spooled) -> None:
    """502 keeps the key and is remembered; a repeat without an answer changes nothing; a new key starts afresh."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    doubts = []
    for new_key, server_error in ((False, True), (False, False), (True, True)):
        delivery = await taken(house)
        doubts.append(delivery.doubted)
        await house.deliveries.retry(delivery, reason="x", not_before=0, new_key=new_key, server_error=server_error)
    doubts.append((await taken(house)).doubted)
    assert [False, True, True, False] == doubts


@pytest.mark.asyncio
async def test_a_split_is_two_children_with_new_keys(house: Spooled) -> None:
    """Parent gone, halves there, nothing lost between them."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    parent = await taken(house)
    await house.deliveries.split(parent, reason="413")
    left, right = await taken(house), await taken(house)
    assert [(1, 5), (6, 10)] == [span(left), span(right)]
    assert 3 == len({parent.idempotency_key, left.idempotency_key, right.idempotency_key})
    assert {"queued": 10} == await house.terms()


@pytest.mark.asyncio
async def test_a_split_obeys_its_place(house: Spooled) -> None:
    """`at` is the first number of the second child, and must leave something for both."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    parent = await taken(house)
    for outside in (1, 11):
        with pytest.raises(ValueError, match="cannot be split"):
            await house.deliveries.split(parent, reason="x", at=outside)
    await house.deliveries.split(parent, reason="x", at=3)
    assert [(1, 2), (3, 10)] == [span(await taken(house)), span(await taken(house))]


@pytest.mark.asyncio
async def test_a_dead_letter_keeps_record_and_words(house: Spooled) -> None:
    """Setting aside settles the number and keeps the record with what the upstream said."""
    await house.add(calls(1, 1))
    await house.deliveries.declare([SPEC])
    await house.deliveries.set_aside(await taken(house), error="400 no such model", status="400")
    (letter,) = await house.deliveries.dead(route=ROUTE)
    assert (ROUTE, 1, call(1), "400 no such model", "400") == (
        letter.route, letter.number, letter.record, letter.error, letter.status,
    )  # fmt: skip
    assert {"dead": 1} == await house.terms()
    assert [] == list(await house.deliveries.dead(route="other/ai-telemetry"))


@pytest.mark.asyncio
async def test_a_dead_letter_goes_again_with_its_record(house: Spooled) -> None:
    """A retried letter is a delivery again that brings its record along; progress of the others does not move back."""
    await house.add(calls(1, 2))
    await house.deliveries.declare([SPEC])
    await house.deliveries.set_aside(await taken(house, max_records=1), error="400", status="400")
    await deliver(house, await taken(house))
    (letter,) = await house.deliveries.dead()
    assert 1 == await house.deliveries.dead_retry([letter.id, 999])
    assert {"delivered": 1, "queued": 1} == await house.terms()
    assert 3 == (await house.state()).progress
    again = await taken(house)
    assert again.kept is not None
    assert ((1, 1), [call(1)]) == (span(again), list(again.kept.records))
    await deliver(house, again)
    assert {"delivered": 2} == await house.terms()


@pytest.mark.asyncio
async def test_a_discarded_letter_is_counted(house: Spooled) -> None:
    """Discarding moves the number from dead to discarded, once."""
    await house.add(calls(1, 1))
    await house.deliveries.declare([SPEC])
    await house.deliveries.set_aside(await taken(house), error="400", status="400")
    (letter,) = await house.deliveries.dead()
    assert [1, 0] == [await house.deliveries.dead_discard([letter.id]) for _ in range(2)]
    assert {"discarded": 1} == await house.terms()


@pytest.mark.asyncio
async def test_proof_is_an_acceptance_after_the_first_refusal(house: Spooled) -> None:
    """A refused record is proven bad only by another that passed since, not by those before."""
    await house.add(calls(1, 3))
    await house.deliveries.declare([SPEC])
    first, second, third = [await taken(house, max_records=1) for _ in range(3)]
    await deliver(house, first)
    await house.deliveries.retry(second, reason="400", not_before=0, new_key=True, refused_at=7.0)
    second = await taken(house)
    assert (1, 7.0, False) == (second.refusals, second.refused_at, second.proven)
    await deliver(house, third)
    await house.deliveries.retry(second, reason="400", not_before=0, new_key=True, refused_at=9.0)
    second = await taken(house)
    assert (2, 7.0, True) == (second.refusals, second.refused_at, second.proven)


@pytest.mark.asyncio
async def test_the_refusal_of_a_batch_is_the_first_of_its_records(house: Spooled) -> None:
    """After a refused batch of two, the one that passes proves the route for the other."""
    await house.add(calls(1, 2))
    await house.deliveries.declare([SPEC])
    await house.deliveries.split(await taken(house), reason="400", refused=True)
    first, second = await taken(house), await taken(house)
    await deliver(house, first)
    await house.deliveries.retry(second, reason="400", not_before=0, new_key=True, refused_at=1.0)
    assert (await taken(house)).proven


@pytest.mark.asyncio
async def test_an_all_shadow_delivery_proves_nothing(house: Spooled) -> None:
    """What was settled without being sent says nothing about the destination."""
    await house.add(calls(1, 2))
    await house.deliveries.declare([SPEC])
    first, second = await taken(house, max_records=1), await taken(house, max_records=1)
    await house.deliveries.retry(second, reason="400", not_before=0, new_key=True, refused_at=1.0)
    await house.deliveries.settle(first, Settlement(delivered=0, shadow=1))
    assert not (await taken(house)).proven


@pytest.mark.asyncio
async def test_server_errors_count_while_others_pass(house: Spooled) -> None:
    """An upstream that is down blames nobody; one that takes others blames the delivery it does not take."""
    await house.add(calls(1, 20))
    await house.deliveries.declare([SPEC])

    async def fail() -> int:
        delivery = await taken(house, max_records=1)
        await house.deliveries.retry(delivery, reason="500", not_before=0, new_key=True, server_error=True)
        return delivery.server_errors

    async def pass_one() -> None:
        blamed, other = await taken(house, max_records=1), await taken(house, max_records=1)
        await deliver(house, other)
        await house.deliveries.retry(blamed, reason="later", not_before=0, new_key=False)

    assert [0, 0, 0] == [await fail() for _ in range(3)]
    for _ in range(STUCK_AFTER):
        await pass_one()
        await fail()
    assert STUCK_AFTER == await fail()
    assert 1 == (await house.state()).stuck


@pytest.mark.asyncio
async def test_a_route_that_fails_does_not_shred_its_backlog(house: Spooled, clock: StoppedClock) -> None:
    """Deliveries that wait are bounded; stuck and refused single records wait beside them."""
    await house.add(calls(1, 100))
    await house.deliveries.declare([SPEC])
    later = clock.now() + 60
    cut = 0
    while (delivery := await due(house, max_records=2)) is not None:
        cut += 1
        await house.deliveries.retry(delivery, reason="503", not_before=later, new_key=True, server_error=True)
    assert MAX_WAITING == cut


@pytest.mark.asyncio
async def test_a_probe_is_far_from_what_was_refused(house: Spooled) -> None:
    """A refusing route tries single records from the new end, refused ones only when enough were tried."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    batch = await taken(house, max_records=8)
    await house.deliveries.retry(batch, reason="400", not_before=0, new_key=True)
    probes = []
    for _ in range(4):
        probe = await house.deliveries.probe(ROUTE, now=0, max_suspects=2)
        assert probe is not None
        probes.append(span(probe))
        await house.deliveries.retry(probe, reason="400", not_before=0, new_key=True, refused_at=1.0)
    assert [(8, 8), (7, 7), (7, 7), (7, 7)] == probes
    assert {"queued": 10} == await house.terms()


@pytest.mark.asyncio
async def test_a_probe_of_an_uncut_backlog_is_one_record(house: Spooled) -> None:
    """Where no delivery was cut yet, a probe cuts a single one."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    assert (1, 1) == span(await house.deliveries.probe(ROUTE, now=0, max_suspects=1))


@pytest.mark.asyncio
async def test_start_now_leaves_out_what_is_there(house: Spooled) -> None:
    """A route that starts now counts the past as before its start."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([RouteSpec(name=ROUTE, topic=AI_TELEMETRY, start="now")])
    assert None is await due(house)
    await house.add(calls(11, 12))
    assert (11, 12) == span(await due(house))
    assert {"before_start": 10, "queued": 2} == await house.terms()


@pytest.mark.asyncio
async def test_a_route_that_left_the_configuration_is_orphaned(house: Spooled) -> None:
    """Its queue is kept and shown until it is dropped by hand; one that came back goes on where it was."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    await deliver(house, await taken(house, max_records=4))
    with pytest.raises(NotAllowed):
        await house.deliveries.drop(ROUTE)
    await house.deliveries.declare([])
    assert ("orphaned", 6) == ((await house.state()).state, (await house.state()).queued)
    await house.deliveries.declare([SPEC])
    assert (5, 10) == span(await due(house))
    await house.deliveries.declare([])
    assert 6 == await house.deliveries.drop(ROUTE)
    assert [] == list(await house.deliveries.routes())
    with pytest.raises(NotThere):
        await house.deliveries.drop(ROUTE)


@pytest.mark.asyncio
async def test_declaring_takes_everything_out_of_hand(house: Spooled, clock: StoppedClock) -> None:
    """What a cancelled route had in hand, or was waiting for, is due after the next declaration."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    cancelled = await taken(house, max_records=5)
    waiting = await taken(house, max_records=5)
    await house.deliveries.retry(waiting, reason="503", not_before=clock.now() + 86400, new_key=True)
    await house.deliveries.declare([SPEC])
    assert cancelled == await taken(house)
    assert span(waiting) == span(await taken(house))


@pytest.mark.asyncio
async def test_a_mark_comes_back_with_its_delivery(house: Spooled) -> None:
    """What a file destination needs to undo is there after a crash."""
    await house.add(calls(1, 1))
    await house.deliveries.declare([SPEC])
    await house.deliveries.mark(await taken(house), "8:42:1000")
    await house.deliveries.declare([SPEC])
    assert "8:42:1000" == (await taken(house)).mark


@pytest.mark.asyncio
async def test_an_unknown_outcome_is_not_sent_again(house: Spooled) -> None:
    """It leaves the queue, is counted by itself, and nothing makes it due."""
    await house.add(calls(1, 3))
    await house.deliveries.declare([SPEC])
    await house.deliveries.unknown(await taken(house), reason="no answer")
    await house.deliveries.declare([SPEC])
    assert None is await due(house)
    assert {"unknown": 3} == await house.terms()


@pytest.mark.asyncio
async def test_replay_sends_settled_numbers_again_and_counts_them_apart(house: Spooled, clock: StoppedClock) -> None:
    """New deliveries for what was settled in the span of time, behind everything else; the books do not move."""
    await house.add(calls(1, 4))
    clock.move(100)
    since = clock.now()
    await house.add(calls(5, 8))
    await house.deliveries.declare([SPEC])
    await deliver(house, await taken(house, max_records=6))
    assert 2 == await house.deliveries.replay(ROUTE, since=since, until=since + 1, dry_run=True)
    assert 2 == await house.deliveries.replay(ROUTE, since=since, until=since + 1, dry_run=False)
    assert 0 == await house.deliveries.replay(ROUTE, since=since, until=since + 1, dry_run=False)
    newer, replayed = await taken(house), await taken(house)
    assert [(7, 8), (5, 6)] == [span(newer), span(replayed)]
    assert [False, True] == [newer.replay, replayed.replay]
    await deliver(house, newer)
    await deliver(house, replayed)
    assert {"delivered": 8} == await house.terms()


@pytest.mark.asyncio
async def test_routes_do_not_see_each_other(house: Spooled) -> None:
    """Each destination has its own progress through the same entries."""
    other = RouteSpec(name="archive/ai-telemetry", topic=AI_TELEMETRY, required=False)
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC, other])
    await deliver(house, await taken(house))
    assert (1, 10) == span(await due(house, route=other.name))
    assert [11, 1] == [(await house.state()).progress, (await house.state(other.name)).progress]


@pytest.mark.asyncio
async def test_the_state_of_a_route_is_kept(house: Spooled, clock: StoppedClock) -> None:
    """State, reason, queue and the age of its oldest record are what the operator sees."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    await house.deliveries.set_state(ROUTE, "parked", "403 key disabled")
    clock.move(90)
    state = await house.state()
    assert ("parked", "403 key disabled", 10, 90.0) == (state.state, state.reason, state.queued, state.oldest_age_s)


@pytest.mark.asyncio
async def test_an_unknown_route_is_named(house: Spooled) -> None:
    """Asking for a route that was never declared is the caller's mistake."""
    with pytest.raises(NotThere, match="nowhere/usage-events"):
        await house.deliveries.due(f"nowhere/{USAGE_EVENTS}", now=0, max_records=1)


@pytest.mark.asyncio
async def test_a_delivery_that_was_dropped_while_in_hand_changes_nothing(house: Spooled) -> None:
    """The answer to a request of a route that is gone is nobody's any more."""
    await house.add(calls(1, 10))
    await house.deliveries.declare([SPEC])
    delivery = await taken(house)
    await house.deliveries.declare([])
    await house.deliveries.drop(ROUTE)
    await deliver(house, delivery)
    await house.deliveries.declare([SPEC])
    assert {"queued": 10} == await house.terms()
