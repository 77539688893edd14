from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest
from msgspec.structs import replace

from spool.deliveries.protocols import Deliveries
from spool.deliveries.rules import MAX_WAITING, STUCK_AFTER
from spool.deliveries.settling import SentDeliveries
from spool.deliveries.stored import RouteChange, StoredDelivery
from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.errors import NotAllowed, NotThere, SpoolUnavailable, TakenOver
from spool.record import AI_TELEMETRY, USAGE_EVENTS
from tests.exporters.spools import ROUTE, SPEC, Spooled, call, calls
from tests.moved_clock import MovedClock


async def begun(spooled: Spooled, count: int) -> None:
    """Append calls and declare a route that sends them."""
    await spooled.add(calls(1, count))
    await spooled.deliveries.set_routes([SPEC])


async def due(spooled: Spooled, *, max_records: int = 100, route: str = ROUTE) -> Delivery | None:
    return await spooled.deliveries.take_due_delivery(route, now=spooled.clock.now(), max_records=max_records)


async def taken(spooled: Spooled, *, max_records: int = 100, route: str = ROUTE) -> Delivery:
    delivery = await due(spooled, max_records=max_records, route=route)
    assert delivery is not None
    return delivery


async def deliver(spooled: Spooled, delivery: Delivery) -> None:
    await spooled.deliveries.store_settlement(delivery, Settlement(delivered=delivery.count))


def span(delivery: Delivery | None) -> tuple[int, int] | None:
    return None if delivery is None else (delivery.first, delivery.last)


@pytest.mark.one_engine
async def test_deliveries_are_cut_oldest_first(spooled: Spooled) -> None:
    """
    A route gets its backlog in order, up to max_records at a time. A delivery in flight is not returned again.
    """
    await begun(spooled, 25)
    spans = [span(await due(spooled, max_records=10)) for _ in range(4)]
    assert [(1, 10), (11, 20), (21, 25), None] == spans


@pytest.mark.one_engine
async def test_numbers_above_a_border_are_left_for_later(spooled: Spooled) -> None:
    """
    Numbers above the border become due when the border moves, without any other change. Existing deliveries
    ignore the border.
    """
    await begun(spooled, 25)
    now = spooled.clock.now()

    async def cut(below: int) -> Delivery | None:
        return await spooled.deliveries.take_due_delivery(ROUTE, now=now, max_records=10, below_number=below)

    first = await cut(13)
    assert first is not None
    spans = [span(first), *[span(await cut(below)) for below in (13, 13, 20, 99)]]
    assert [(1, 10), (11, 12), None, (13, 19), (20, 25)] == spans
    await spooled.deliveries.schedule_retry(first, reason="503", not_before=now, answer="503")
    assert (1, 10) == span(await cut(1))


async def test_routes_declared_later_leave_deliveries_as_they_are(spooled: Spooled) -> None:
    """
    When a further route is declared, deliveries in flight stay in flight and waiting ones wait. Routes may be
    added, removed and added again.
    """
    await begun(spooled, 20)
    in_hand, waiting = await taken(spooled, max_records=10), await taken(spooled, max_records=10)
    await spooled.deliveries.schedule_retry(
        waiting, reason="503", not_before=spooled.clock.now() + 60, answer="503"
    )
    other = RouteSpec(name="other/ai-telemetry", topic=SPEC.topic)
    await spooled.deliveries.set_routes([other], at_start=False)
    assert {"orphaned", "running"} == {state.state for state in await spooled.deliveries.route_states()}
    await spooled.deliveries.set_routes([SPEC, other], at_start=False)
    assert {"running"} == {state.state for state in await spooled.deliveries.route_states()}
    assert None is await due(spooled)
    await spooled.deliveries.store_settlement(in_hand, Settlement(delivered=10))
    assert {"delivered": 10, "queued": 10} == await spooled.terms()
    assert [0, 0] == [state.ambiguous for state in await spooled.deliveries.route_states()]


async def test_what_waits_in_a_restored_copy_keeps_its_keys(spooled: Spooled) -> None:
    """
    A waiting delivery may have been sent since the backup was made. With its old key, the retry is recognized
    as a repeat.
    """
    await begun(spooled, 20)
    before = await taken(spooled, max_records=10)
    await spooled.deliveries.reopen_after_restore(unknown_outcome_reason=None)
    await spooled.deliveries.set_routes([SPEC])
    after = await taken(spooled, max_records=10)
    assert before.idempotency_key == after.idempotency_key
    assert after.ambiguous is True
    assert {"queued": 20} == await spooled.terms()


async def test_what_is_held_back_is_settled_by_hand(spooled: Spooled) -> None:
    """
    After a restore with `hold_back`, no delivery is due. The operator sends deliveries that did not arrive, and
    marks others as delivered.
    """
    await begun(spooled, 30)
    await deliver(spooled, await taken(spooled, max_records=10))
    await taken(spooled, max_records=10)
    await spooled.deliveries.reopen_after_restore(unknown_outcome_reason="of a backup")
    await spooled.deliveries.set_routes([SPEC])
    assert None is await due(spooled)
    assert {"delivered": 10, "unknown": 20} == await spooled.terms()
    cut, rest = await spooled.deliveries.deliveries_with_unknown_outcome()
    assert [(11, 20), (21, 30), "of a backup"] == [
        (cut.first, cut.last),
        (rest.first, rest.last),
        rest.reason,
    ]
    await spooled.deliveries.settle_unknown(cut.id, sent=True)
    await spooled.deliveries.settle_unknown(rest.id, sent=False)
    assert (21, 30) == span(await due(spooled))
    assert {"delivered": 20, "queued": 10} == await spooled.terms()
    assert [] == list((await spooled.log.books()).imbalances)


@pytest.mark.one_engine
async def test_a_new_record_is_due_at_once(spooled: Spooled) -> None:
    """A record that closes while a route is idle does not wait for others."""
    await spooled.deliveries.set_routes([SPEC])
    assert None is await due(spooled)
    await spooled.add(calls(1, 1))
    assert (1, 1) == span(await due(spooled))


async def test_settled_numbers_are_counted_by_where_they_went(spooled: Spooled) -> None:
    """A settlement moves each number of its delivery to exactly one term, and lists the rejected ones."""
    await begun(spooled, 10)
    settlement = Settlement(delivered=5, refused=2, shadow=1, unmapped=1, damaged=1, words="two were too old")
    await spooled.deliveries.store_settlement(await taken(spooled), settlement)
    assert {
        "delivered": 5,
        "refused_upstream": 2,
        "shadow": 1,
        "unmapped": 1,
        "damaged": 1,
    } == await spooled.terms()
    (refusal,) = await spooled.deliveries.partial_refusals(route=ROUTE)
    assert refusal.first == 1
    assert refusal.last == 10
    assert refusal.count == 2
    assert refusal.words == "two were too old"
    assert [] == list((await spooled.log.books()).imbalances)


@pytest.mark.rule
async def test_a_settlement_that_does_not_add_up_is_refused(spooled: Spooled) -> None:
    """In a settlement, no number may be lost or counted twice."""
    await begun(spooled, 10)
    delivery = await taken(spooled)
    with pytest.raises(ValueError, match="does not add up"):
        await spooled.deliveries.store_settlement(delivery, Settlement(delivered=9))


async def test_a_repeat_after_no_answer_is_the_same_request(spooled: Spooled, clock: MovedClock) -> None:
    """After no answer, the retry has the same numbers and the same key, and is due at its time."""
    await begun(spooled, 10)
    first = await taken(spooled)
    await spooled.deliveries.schedule_retry(
        first, reason="no answer", not_before=clock.now() + 5, may_be_accepted=True
    )
    assert None is await due(spooled)
    assert clock.now() + 5 == await spooled.deliveries.next_due_at(ROUTE)
    clock.move(5)
    again = await taken(spooled)
    assert first.first == again.first
    assert first.last == again.last
    assert first.idempotency_key == again.idempotency_key
    assert again.attempts == 1
    assert again.last_error == "no answer"


async def test_an_answer_spends_the_key(spooled: Spooled, clock: MovedClock) -> None:
    await begun(spooled, 10)
    first = await taken(spooled)
    await spooled.deliveries.schedule_retry(
        first, reason="503", not_before=0, answer="503", server_error=True
    )
    again = await taken(spooled)
    assert first.id == again.id
    assert first.idempotency_key != again.idempotency_key


async def answered(
    spooled: Spooled, answer: str | None, *, ambiguous: bool = False, definite: bool = False
) -> Delivery:
    """Send the due delivery, record this answer, and return the delivery as it is due again."""
    reason = answer or "no answer"
    delivery = await taken(spooled)
    await spooled.deliveries.schedule_retry(
        delivery,
        reason=reason,
        not_before=0,
        answer=answer,
        may_be_accepted=ambiguous,
        proves_no_acceptance=definite,
    )
    again = await taken(spooled)
    await spooled.deliveries.schedule_retry(again, reason="was not sent", not_before=0)
    return again


async def ambiguous_records(spooled: Spooled) -> int:
    (route,) = await spooled.deliveries.route_states()
    return route.ambiguous


@pytest.mark.rule
@pytest.mark.parametrize("answer", ["401", "403", "404", "408", "409", "429", "500", "503"])
async def test_an_ambiguous_delivery_keeps_its_key(spooled: Spooled, answer: str) -> None:
    """
    After a request without an answer, the delivery keeps its key, whatever a gateway in between answers. Only
    three equal answers end this.
    """
    await begun(spooled, 10)
    lost = await answered(spooled, None, ambiguous=True)
    over = [await answered(spooled, said) for said in (answer, "other", answer, answer, answer)]
    assert [True] * 4 + [False] == [one.ambiguous for one in over]
    assert [True] * 4 + [False] == [one.idempotency_key == lost.idempotency_key for one in over]
    assert 10 == await ambiguous_records(spooled)


@pytest.mark.one_engine
async def test_a_gateway_error_is_no_answer(spooled: Spooled) -> None:
    """
    After a 502, the service behind the gateway may have accepted the request. The delivery keeps its key
    until three equal answers show that the answer is only repeated from memory.
    """
    await begun(spooled, 10)
    first, second, third = [await answered(spooled, "502", ambiguous=True) for _ in range(3)]
    assert first.ambiguous is True
    assert second.ambiguous is True
    assert third.ambiguous is False
    assert first.idempotency_key == second.idempotency_key != third.idempotency_key


@pytest.mark.rule
async def test_no_answer_in_between_changes_nothing(spooled: Spooled) -> None:
    """A request without an answer does not reset the count of equal answers."""
    await begun(spooled, 10)
    said = (None, "503", None, "503", None, "503")
    keys = [(await answered(spooled, answer, ambiguous=answer is None)).idempotency_key for answer in said]
    assert 1 == len(set(keys[:-1]))
    assert keys[-1] != keys[0]


@pytest.mark.rule
async def test_a_definite_answer_ends_a_doubt(spooled: Spooled) -> None:
    """A definite answer states that nothing was accepted, so the retry is a new request."""
    await begun(spooled, 10)
    lost = await answered(spooled, None, ambiguous=True)
    refused = await answered(spooled, "400", definite=True)
    assert lost.ambiguous is True
    assert refused.ambiguous is False
    assert lost.idempotency_key != refused.idempotency_key


@pytest.mark.one_engine
@pytest.mark.parametrize(("mark", "ambiguous"), [(None, True), ("7 42", False)])
async def test_what_was_in_hand_at_the_end_is_ambiguous(
    spooled: Spooled, mark: str | None, ambiguous: bool
) -> None:
    """
    After a restart nobody knows whether a delivery in flight was accepted. Other deliveries, and deliveries
    with a mark, are not ambiguous.
    """
    await begun(spooled, 20)
    waiting, in_hand = await taken(spooled, max_records=10), await taken(spooled, max_records=10)
    await spooled.deliveries.schedule_retry(waiting, reason="503", not_before=0, answer="503")
    if mark is not None:
        await spooled.deliveries.store_delivery_mark(in_hand, mark)
    await spooled.deliveries.set_routes([SPEC])
    again = [await taken(spooled) for _ in range(2)]
    assert [False, ambiguous] == [one.ambiguous for one in again]
    assert in_hand.idempotency_key == again[1].idempotency_key
    assert (10 if ambiguous else 0) == await ambiguous_records(spooled)


Verb = Callable[[Deliveries, Delivery], Awaitable[None]]
VERBS: Mapping[str, Verb] = {
    "settle": lambda deliveries, one: deliveries.store_settlement(one, Settlement(delivered=one.count)),
    "split": lambda deliveries, one: deliveries.split_delivery(one, reason="413"),
    "set aside": lambda deliveries, one: deliveries.set_aside(one, error="400", status="400"),
    "retry": lambda deliveries, one: deliveries.schedule_retry(
        one, reason="503", not_before=0.0, answer="503"
    ),
    "unknown": lambda deliveries, one: deliveries.mark_outcome_unknown(one, reason="cut off"),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_who_took_it_before_changes_nothing(spooled: Spooled, verb: str) -> None:
    """Only the process that took a delivery last may settle it. If another process tries, this is counted."""
    await begun(spooled, 2)
    before = await taken(spooled)
    await spooled.deliveries.set_routes([SPEC])
    now = await taken(spooled)
    assert before.id == now.id
    assert before.fence < now.fence
    shown = await spooled.deliveries.unsettled_deliveries()
    await VERBS[verb](spooled.deliveries, before)
    with pytest.raises(TakenOver):
        await spooled.deliveries.store_delivery_mark(before, "7 42")
    assert spooled.deliveries.fenced == 2
    assert await spooled.deliveries.unsettled_deliveries() == shown
    assert await due(spooled) is None
    await spooled.deliveries.store_delivery_mark(now, "7 43")
    await deliver(spooled, now)
    assert {"delivered": 2} == await spooled.terms()
    assert spooled.deliveries.fenced == 2
    assert list(await spooled.deliveries.unsettled_deliveries()) == []


@pytest.mark.rule
async def test_an_ambiguous_batch_is_no_source_of_probes(spooled: Spooled) -> None:
    """
    A refusing route sends an ambiguous batch whole under its key, instead of a part of it under another key.
    """
    await begun(spooled, 11)
    batch = await taken(spooled, max_records=10)
    single = await taken(spooled, max_records=1)
    await spooled.deliveries.schedule_retry(batch, reason="no answer", not_before=0, may_be_accepted=True)
    await spooled.deliveries.schedule_retry(single, reason="400", not_before=0, answer="400", refused_at=1.0)
    probe = await spooled.deliveries.take_test_delivery(
        ROUTE, now=spooled.clock.now(), max_rejected_records=16
    )
    assert probe is not None
    assert span(batch) == span(probe)
    assert batch.idempotency_key == probe.idempotency_key


@pytest.mark.one_engine
async def test_a_split_is_two_children_with_new_keys(spooled: Spooled) -> None:
    """A split deletes the parent and creates both halves without a gap."""
    await begun(spooled, 10)
    parent = await taken(spooled)
    await spooled.deliveries.split_delivery(parent, reason="413")
    left, right = await taken(spooled), await taken(spooled)
    assert [(1, 5), (6, 10)] == [span(left), span(right)]
    assert 3 == len({parent.idempotency_key, left.idempotency_key, right.idempotency_key})
    assert {"queued": 10} == await spooled.terms()


@pytest.mark.rule
async def test_a_split_obeys_its_place(spooled: Spooled) -> None:
    """`at` is the first number of the second child. Both children must have at least one number."""
    await begun(spooled, 10)
    parent = await taken(spooled)
    for outside in (1, 11):
        with pytest.raises(ValueError, match="cannot be split"):
            await spooled.deliveries.split_delivery(parent, reason="x", second_first_number=outside)
    await spooled.deliveries.split_delivery(parent, reason="x", second_first_number=3)
    assert [(1, 2), (3, 10)] == [span(await taken(spooled)), span(await taken(spooled))]


@pytest.mark.one_engine
async def test_a_dead_letter_keeps_record_and_words(spooled: Spooled) -> None:
    """Setting aside settles the number, and stores the record with the upstream's message."""
    await begun(spooled, 1)
    await spooled.deliveries.set_aside(await taken(spooled), error="400 no such model", status="400")
    (letter,) = await spooled.deliveries.dead_letters(route=ROUTE)
    assert letter.route == ROUTE
    assert letter.number == 1
    assert call(1) == letter.record
    assert letter.error == "400 no such model"
    assert letter.status == "400"
    assert {"dead": 1} == await spooled.terms()
    assert [] == list(await spooled.deliveries.dead_letters(route="other/ai-telemetry"))


async def test_retried_dead_letter_is_delivered_with_its_record(spooled: Spooled) -> None:
    """
    A retried dead letter becomes a delivery with its record. The progress of other numbers does not move back.
    """
    await begun(spooled, 2)
    await spooled.deliveries.set_aside(await taken(spooled, max_records=1), error="400", status="400")
    await deliver(spooled, await taken(spooled))
    (letter,) = await spooled.deliveries.dead_letters()
    assert 1 == await spooled.deliveries.retry_dead_letters([letter.id, 999])
    assert {"delivered": 1, "queued": 1} == await spooled.terms()
    assert 3 == (await spooled.state()).progress
    again = await taken(spooled)
    assert again.kept is not None
    assert span(again) == (1, 1)
    assert [call(1)] == list(again.kept.records)
    await deliver(spooled, again)
    assert {"delivered": 2} == await spooled.terms()


async def test_edited_dead_letter_is_delivered_with_the_edited_record(spooled: Spooled) -> None:
    """
    The delivery of an edited letter has the edited record, and so has its dead letter after another
    rejection. The log keeps its own record.
    """
    await begun(spooled, 1)
    await spooled.deliveries.set_aside(await taken(spooled), error="400", status="400")
    (letter,) = await spooled.deliveries.dead_letters()
    edited = replace(call(1), request_model="gpt-5")
    with pytest.raises(NotThere):
        await spooled.deliveries.edit_and_retry_dead_letter(letter.id + 99, edited)
    await spooled.deliveries.edit_and_retry_dead_letter(letter.id, edited)
    assert {"queued": 1} == await spooled.terms()
    again = await taken(spooled)
    assert again.kept is not None and [edited] == list(again.kept.records)
    await spooled.deliveries.set_aside(again, error="400 again", status="400")
    assert [edited] == [letter.record for letter in await spooled.deliveries.dead_letters()]
    assert [call(1)] == list((await spooled.log.read(AI_TELEMETRY, 1, 1))[0].records)


async def test_a_discarded_letter_is_counted(spooled: Spooled) -> None:
    """Discarding moves the letter's number from dead to discarded, once."""
    await begun(spooled, 1)
    await spooled.deliveries.set_aside(await taken(spooled), error="400", status="400")
    (letter,) = await spooled.deliveries.dead_letters()
    assert [1, 0] == [await spooled.deliveries.discard_dead_letters([letter.id]) for _ in range(2)]
    assert {"discarded": 1} == await spooled.terms()


@pytest.mark.one_engine
async def test_proof_is_an_acceptance_after_the_first_refusal(spooled: Spooled) -> None:
    """A record is proven bad only if another record is accepted after its first rejection, not before."""
    await begun(spooled, 3)
    first, second, third = [await taken(spooled, max_records=1) for _ in range(3)]
    await deliver(spooled, first)
    await spooled.deliveries.schedule_retry(second, reason="400", not_before=0, answer="400", refused_at=7.0)
    second = await taken(spooled)
    assert second.refusals == 1
    assert second.refused_at == 7.0
    assert second.proven is False
    await deliver(spooled, third)
    await spooled.deliveries.schedule_retry(second, reason="400", not_before=0, answer="400", refused_at=9.0)
    second = await taken(spooled)
    assert second.refusals == 2
    assert second.refused_at == 7.0
    assert second.proven is True


@pytest.mark.rule
async def test_the_refusal_of_a_batch_is_the_first_of_its_records(spooled: Spooled) -> None:
    """
    A batch of two is rejected. If one of its records is then accepted, the route is proven to work, so the
    other record is bad.
    """
    await begun(spooled, 2)
    await spooled.deliveries.split_delivery(await taken(spooled), reason="400", refused=True)
    first, second = await taken(spooled), await taken(spooled)
    await deliver(spooled, first)
    await spooled.deliveries.schedule_retry(second, reason="400", not_before=0, answer="400", refused_at=1.0)
    assert (await taken(spooled)).proven


@pytest.mark.rule
async def test_an_all_shadow_delivery_proves_nothing(spooled: Spooled) -> None:
    """A delivery that was settled without being sent proves nothing about the destination."""
    await begun(spooled, 2)
    first, second = await taken(spooled, max_records=1), await taken(spooled, max_records=1)
    await spooled.deliveries.schedule_retry(second, reason="400", not_before=0, answer="400", refused_at=1.0)
    await spooled.deliveries.store_settlement(first, Settlement(delivered=0, shadow=1))
    assert not (await taken(spooled)).proven


@pytest.mark.one_engine
async def test_server_errors_count_while_others_pass(spooled: Spooled) -> None:
    """
    While the upstream is down, no delivery is blamed. If the upstream accepts other deliveries, the failing
    one is blamed.
    """
    await begun(spooled, 20)

    async def fail() -> int:
        delivery = await taken(spooled, max_records=1)
        await spooled.deliveries.schedule_retry(
            delivery, reason="500", not_before=0, answer="500", server_error=True
        )
        return delivery.server_errors

    async def pass_one() -> None:
        blamed, other = await taken(spooled, max_records=1), await taken(spooled, max_records=1)
        await deliver(spooled, other)
        await spooled.deliveries.schedule_retry(blamed, reason="later", not_before=0)

    assert [0, 0, 0] == [await fail() for _ in range(3)]
    for _ in range(STUCK_AFTER):
        await pass_one()
        await fail()
    assert STUCK_AFTER == await fail()
    assert 1 == (await spooled.state()).stuck


@pytest.mark.rule
async def test_a_route_that_fails_does_not_shred_its_backlog(spooled: Spooled, clock: MovedClock) -> None:
    """
    The number of waiting deliveries is limited. Stuck and refused single records do not count towards this limit.
    """
    await begun(spooled, 100)
    later = clock.now() + 60
    cut = 0
    while (delivery := await due(spooled, max_records=2)) is not None:
        cut += 1
        await spooled.deliveries.schedule_retry(
            delivery, reason="503", not_before=later, answer="503", server_error=True
        )
    assert MAX_WAITING == cut


async def test_a_probe_is_far_from_what_was_refused(spooled: Spooled) -> None:
    """
    A refusing route tries single records from the newest end, and refused ones only after enough others.
    """
    await begun(spooled, 10)
    batch = await taken(spooled, max_records=8)
    await spooled.deliveries.schedule_retry(batch, reason="400", not_before=0, answer="400")
    probes = []
    for _ in range(4):
        probe = await spooled.deliveries.take_test_delivery(ROUTE, now=0, max_rejected_records=2)
        assert probe is not None
        probes.append(span(probe))
        await spooled.deliveries.schedule_retry(
            probe, reason="400", not_before=0, answer="400", refused_at=1.0
        )
    assert [(8, 8), (7, 7), (7, 7), (7, 7)] == probes
    assert {"queued": 10} == await spooled.terms()


@pytest.mark.rule
async def test_a_probe_of_an_uncut_backlog_is_one_record(spooled: Spooled) -> None:
    """If no delivery exists yet, a probe creates one with a single record."""
    await begun(spooled, 10)
    assert (1, 1) == span(await spooled.deliveries.take_test_delivery(ROUTE, now=0, max_rejected_records=1))


@pytest.mark.one_engine
async def test_start_now_leaves_out_what_is_there(spooled: Spooled) -> None:
    """A route with `start="now"` counts earlier records as before its start."""
    await spooled.add(calls(1, 10))
    await spooled.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY, start="now")])
    assert None is await due(spooled)
    await spooled.add(calls(11, 12))
    assert (11, 12) == span(await due(spooled))
    assert {"before_start": 10, "queued": 2} == await spooled.terms()


async def test_a_route_that_left_the_configuration_is_orphaned(spooled: Spooled) -> None:
    """
    An orphaned route's queue is stored and shown until an operator drops it. If the route
    returns, it continues there.
    """
    await begun(spooled, 10)
    await deliver(spooled, await taken(spooled, max_records=4))
    with pytest.raises(NotAllowed):
        await spooled.deliveries.delete_route_and_count_discarded(ROUTE)
    await spooled.deliveries.set_routes([])
    assert (await spooled.state()).state == "orphaned"
    assert (await spooled.state()).queued == 6
    await spooled.deliveries.set_routes([SPEC])
    assert (5, 10) == span(await due(spooled))
    await spooled.deliveries.set_routes([])
    assert 6 == await spooled.deliveries.delete_route_and_count_discarded(ROUTE)
    assert [] == list(await spooled.deliveries.route_states())
    with pytest.raises(NotThere):
        await spooled.deliveries.delete_route_and_count_discarded(ROUTE)


@pytest.mark.one_engine
async def test_declaration_makes_cancelled_deliveries_due(spooled: Spooled, clock: MovedClock) -> None:
    """After the next declaration, everything is due that a cancelled route had in flight or waiting."""
    await begun(spooled, 10)
    cancelled = await taken(spooled, max_records=5)
    waiting = await taken(spooled, max_records=5)
    await spooled.deliveries.schedule_retry(
        waiting, reason="503", not_before=clock.now() + 86400, answer="503"
    )
    await spooled.deliveries.set_routes([SPEC])
    again = await taken(spooled)
    assert replace(cancelled, ambiguous=True, fence=again.fence) == again
    assert span(waiting) == span(await taken(spooled))


async def test_mark_of_a_delivery_survives_a_crash(spooled: Spooled) -> None:
    """After a crash, a file destination finds what it has to undo."""
    await begun(spooled, 1)
    await spooled.deliveries.store_delivery_mark(await taken(spooled), "8:42:1000")
    await spooled.deliveries.set_routes([SPEC])
    assert "8:42:1000" == (await taken(spooled)).mark


@pytest.mark.one_engine
async def test_an_unknown_outcome_is_not_sent_again(spooled: Spooled) -> None:
    """A delivery with an unknown outcome leaves the queue, counts as unknown, and never becomes due."""
    await begun(spooled, 3)
    await spooled.deliveries.mark_outcome_unknown(await taken(spooled), reason="no answer")
    await spooled.deliveries.set_routes([SPEC])
    assert None is await due(spooled)
    assert {"unknown": 3} == await spooled.terms()


@pytest.mark.parametrize("sent", [True, False])
async def test_an_unknown_delivery_is_settled_once(spooled: Spooled, sent: bool) -> None:
    """
    The operator marks an unknown delivery as delivered, or it is due again under a new key. The
    accounting always balances.
    """
    await spooled.deliveries.set_routes([SPEC])
    await spooled.add(calls(1, 2))
    delivery = await taken(spooled)
    await spooled.deliveries.store_delivery_mark(delivery, "0")
    await spooled.deliveries.mark_outcome_unknown(delivery, reason="no answer")
    assert await due(spooled) is None
    (unknown,) = await spooled.deliveries.deliveries_with_unknown_outcome()
    assert delivery.id == unknown.id
    assert unknown.first == 1
    assert unknown.last == 2
    assert unknown.reason == "no answer"
    assert unknown.route == ROUTE
    assert unknown.topic == AI_TELEMETRY
    assert unknown.kept is None
    await spooled.deliveries.settle_unknown(unknown.id, sent=sent)
    with pytest.raises(NotThere):
        await spooled.deliveries.settle_unknown(unknown.id, sent=sent)
    again = await due(spooled)
    assert sent == (again is None)
    if again is not None:
        assert again.first == 1
        assert again.last == 2
        assert again.mark is None
        assert delivery.idempotency_key != again.idempotency_key
    books = await spooled.log.verify()
    assert [] == list(books.imbalances)
    assert 2 == books.routes[ROUTE]["delivered" if sent else "queued"]


async def test_what_is_not_settled_is_shown(spooled: Spooled) -> None:
    """
    Waiting and unknown deliveries are listed with attempts and last error. The route also counts unknown replays.
    """
    await spooled.deliveries.set_routes([SPEC])
    await spooled.add(calls(1, 4))
    await spooled.deliveries.store_settlement(await taken(spooled, max_records=1), Settlement(delivered=1))
    await spooled.deliveries.mark_outcome_unknown(await taken(spooled, max_records=2), reason="no answer")
    waiting = await taken(spooled, max_records=1)
    at = spooled.clock.now() + 30
    await spooled.deliveries.schedule_retry(waiting, reason="503", not_before=at)
    shown = await spooled.deliveries.unsettled_deliveries()
    assert [(ROUTE, 2, 3, "unknown", "no answer"), (ROUTE, 4, 4, "open", "503")] == [
        (each.route, each.first, each.last, each.state, each.last_error) for each in shown
    ]
    assert shown[1].attempts == 1
    assert shown[1].not_before == at
    assert shown[1].replay is False
    replayed = await spooled.deliveries.replay_records(
        ROUTE, since=0, until=spooled.clock.now() + 1, dry_run=False
    )
    assert replayed == 1
    assert (await spooled.deliveries.route_states())[0].unknown == 2
    await spooled.deliveries.mark_outcome_unknown(await taken(spooled), reason="no answer")
    assert [True] == [
        each.replay for each in await spooled.deliveries.unsettled_deliveries() if each.first == 1
    ]
    assert 3 == (await spooled.deliveries.route_states())[0].unknown
    for unknown in await spooled.deliveries.deliveries_with_unknown_outcome():
        await spooled.deliveries.settle_unknown(unknown.id, sent=True)
    assert (await spooled.deliveries.route_states())[0].unknown == 0
    assert len(await spooled.deliveries.unsettled_deliveries()) == 1


async def test_a_retried_letter_may_become_unknown(spooled: Spooled) -> None:
    """
    A retried dead letter that becomes unknown keeps its record. Resolving it moves its number from unknown to
    delivered.
    """
    await begun(spooled, 1)
    await spooled.deliveries.set_aside(await taken(spooled), error="400", status="400")
    await spooled.deliveries.retry_dead_letters(
        [letter.id for letter in await spooled.deliveries.dead_letters()]
    )
    await spooled.deliveries.mark_outcome_unknown(await taken(spooled), reason="no answer")
    (unknown,) = await spooled.deliveries.deliveries_with_unknown_outcome()
    assert unknown.kept is not None
    assert [call(1)] == list(unknown.kept.records)
    assert {"unknown": 1} == await spooled.terms()
    await spooled.deliveries.settle_unknown(unknown.id, sent=True)
    assert {"delivered": 1} == await spooled.terms()


async def test_a_letter_of_a_dropped_route_can_only_be_discarded(spooled: Spooled) -> None:
    """If one letter's route is gone, the whole retry is refused."""
    other = RouteSpec(name="archive/ai-telemetry", topic=AI_TELEMETRY)
    await spooled.add(calls(1, 1))
    await spooled.deliveries.set_routes([SPEC, other])
    for route in (ROUTE, other.name):
        await spooled.deliveries.set_aside(await taken(spooled, route=route), error="400", status="400")
    await spooled.deliveries.set_routes([SPEC])
    await spooled.deliveries.delete_route_and_count_discarded(other.name)
    letters = [letter.id for letter in await spooled.deliveries.dead_letters()]
    with pytest.raises(NotAllowed, match=other.name):
        await spooled.deliveries.retry_dead_letters(letters)
    assert letters == [letter.id for letter in await spooled.deliveries.dead_letters()]
    assert 2 == await spooled.deliveries.discard_dead_letters(letters)
    assert {"discarded": 1} == await spooled.terms()


async def test_replay_sends_settled_numbers_again_and_counts_them_apart(
    spooled: Spooled, clock: MovedClock
) -> None:
    """
    Numbers that were settled in the time range get new deliveries after all others. The accounting does not change.
    """
    await spooled.add(calls(1, 4))
    clock.move(100)
    since = clock.now()
    await spooled.add(calls(5, 8))
    await spooled.deliveries.set_routes([SPEC])
    await deliver(spooled, await taken(spooled, max_records=6))
    assert 2 == await spooled.deliveries.replay_records(ROUTE, since=since, until=since + 1, dry_run=True)
    version = spooled.deliveries.version
    assert 2 == await spooled.deliveries.replay_records(ROUTE, since=since, until=since + 1, dry_run=False)
    assert version < spooled.deliveries.version
    assert 0 == await spooled.deliveries.replay_records(ROUTE, since=since, until=since + 1, dry_run=False)
    newer, replayed = await taken(spooled), await taken(spooled)
    assert [(7, 8), (5, 6)] == [span(newer), span(replayed)]
    assert [False, True] == [newer.replay, replayed.replay]
    await deliver(spooled, newer)
    await deliver(spooled, replayed)
    assert {"delivered": 8} == await spooled.terms()


@pytest.mark.one_engine
async def test_routes_do_not_see_each_other(spooled: Spooled) -> None:
    """Each destination has its own progress through the same entries."""
    other = RouteSpec(name="archive/ai-telemetry", topic=AI_TELEMETRY, required=False)
    await spooled.add(calls(1, 10))
    await spooled.deliveries.set_routes([SPEC, other])
    await deliver(spooled, await taken(spooled))
    assert (1, 10) == span(await due(spooled, route=other.name))
    assert [11, 1] == [(await spooled.state()).progress, (await spooled.state(other.name)).progress]


async def test_operators_see_the_state_of_a_route(spooled: Spooled, clock: MovedClock) -> None:
    """Operators see the state, its reason, the queue and the age of the oldest record."""
    await begun(spooled, 10)
    await spooled.deliveries.set_route_state(ROUTE, "parked", "403 key disabled")
    clock.move(90)
    state = await spooled.state()
    assert state.state == "parked"
    assert state.reason == "403 key disabled"
    assert state.queued == 10
    assert state.oldest_age_s == 90.0


@pytest.mark.rule
async def test_route_states_the_start_of_its_state(spooled: Spooled, clock: MovedClock) -> None:
    """
    A route's `since` is the start of its state, whatever later reasons are. A running route has no such time.
    """
    await spooled.deliveries.set_routes([SPEC])
    assert (await spooled.state()).since is None
    parked = clock.now()
    for state, reason, since in (
        ("parked", "401", parked), ("parked", "403", parked), ("refusing", "422", parked + 180),
        ("running", None, None), ("running", "503", None), ("parked", "401", parked + 450),
    ):  # fmt: skip
        await spooled.deliveries.set_route_state(ROUTE, state, reason)
        found = await spooled.state()
        assert found.state == state
        assert found.reason == reason
        assert found.since == since
        clock.move(90)
    await spooled.deliveries.set_routes([])
    assert (await spooled.state()).since is None


async def test_an_unknown_route_is_named(spooled: Spooled) -> None:
    with pytest.raises(NotThere, match="nowhere/usage-events"):
        await spooled.deliveries.take_due_delivery(f"nowhere/{USAGE_EVENTS}", now=0, max_records=1)


async def test_a_delivery_that_was_dropped_while_in_hand_changes_nothing(spooled: Spooled) -> None:
    """The answer to a dropped route's request has no effect."""
    await begun(spooled, 10)
    delivery = await taken(spooled)
    await spooled.deliveries.set_routes([])
    await spooled.deliveries.delete_route_and_count_discarded(ROUTE)
    await deliver(spooled, delivery)
    await spooled.deliveries.set_routes([SPEC])
    assert {"queued": 10} == await spooled.terms()


@pytest.mark.one_engine
async def test_what_could_not_be_said_of_a_delivery(spooled: Spooled) -> None:
    """
    If the storage is unavailable when an answer arrives, the delivery is due again under its key, marked
    as possibly accepted.
    """

    def fail(delivery: StoredDelivery) -> RouteChange:
        raise SpoolUnavailable("away")

    await begun(spooled, 10)
    first = await taken(spooled)
    assert isinstance(spooled.deliveries, SentDeliveries)
    with pytest.raises(SpoolUnavailable):
        await spooled.deliveries._apply_transition(first, fail)
    second = await taken(spooled)
    assert span(second) == (1, 10)
    assert first.idempotency_key == second.idempotency_key
    assert second.ambiguous is True
    assert first.fence < second.fence
    await deliver(spooled, second)
    assert await spooled.terms() == {"delivered": 10}
    assert (await spooled.state()).ambiguous == 10


async def test_a_delivery_that_is_given_back(spooled: Spooled) -> None:
    """
    A delivery that is given back is due at its time under its key, marked as possibly accepted, unless it was
    answered before.
    """
    await begun(spooled, 20)
    given, answered = await taken(spooled, max_records=10), await taken(spooled, max_records=10)
    now = spooled.clock.now()
    await spooled.deliveries.schedule_retry(answered, reason="429", not_before=now, answer="429")
    for delivery in (given, answered):
        await spooled.deliveries.requeue_as_possibly_received(delivery, reason="away", not_before=now + 60)
    again = await taken(spooled)
    assert span(again) == (11, 20)
    assert again.ambiguous is False
    assert await due(spooled) is None
    assert await spooled.deliveries.next_due_at(ROUTE) == now + 60
    assert 10 == (await spooled.state()).ambiguous


async def test_what_somebody_else_has_settled_is_not_sent(spooled: Spooled) -> None:
    """
    A process is suspended while it holds a delivery, and another process settles it. The first process then
    cannot store its mark, so it sends nothing.
    """
    await begun(spooled, 10)
    delivery = await taken(spooled)
    await deliver(spooled, delivery)
    with pytest.raises(TakenOver):
        await spooled.deliveries.store_delivery_mark(delivery, "7 42")
