"""The merge window: halves in different requests, repeats, restarts, refusals and bounds."""

from __future__ import annotations

from functools import partial

import pytest

from gateway.normalise.formats.langfuse.events import TURN
from gateway.normalise.formats.langfuse.pending import Before, Sender, Waiting, keys_of
from gateway.normalise.outcome import MERGED, NOT_AI, Outcome
from spool.log.partial_reports import PartialReport
from spool.record import Inference
from tests.gateway.normalise.formats.langfuse_events import batch, create, trace, update
from tests.gateway.normalise.formats.payloads import assert_balanced, read

room = partial(Waiting, window_s=600.0, hold_s=0.0, max_halves=20_000, max_bytes=2**24)
ALICE, BOB = Sender("alice", {"team": "search"}), Sender("bob")


def join(waiting: Waiting, *events: object, sender: Sender = ALICE, now: float = 0.0) -> Outcome:
    outcome, _ = begin(waiting, *events, sender=sender, now=now)
    return outcome


def begin(waiting: Waiting, *events: object, sender: Sender = ALICE, now: float = 0.0) -> tuple[Outcome, Before]:
    outcome = read("langfuse", batch(*events))
    before: Before = {}
    for _ in waiting.join(outcome, before, sender=sender, now=now):
        pass
    assert_balanced(outcome)
    return outcome, before


def records(outcome: Outcome) -> list[Inference]:
    return [record for record in outcome.records if isinstance(record, Inference)]


def test_a_create_waits_for_its_update() -> None:
    """The call is one record, with the model of the one and the tokens of the other; nothing is pending any more."""
    waiting = room()
    first, second = join(waiting, create()), join(waiting, update())
    (record,) = records(second)
    assert ("gpt-4o-mini", 10, 4) == (record.request_model, record.input_tokens, record.output_tokens)
    assert (1, -1, {MERGED: 1}) == (first.pending, second.pending, dict(second.ignored))
    assert [half.key for half in first.keep] == second.forget
    assert 0 == len(waiting)


def test_an_update_waits_for_its_create() -> None:
    """Requests overtake one another; the model of the answer stays, because its event is the later one."""
    waiting = room()
    answered = update(model="gpt-4o-mini-2024-07-18") | {"timestamp": "2026-11-20T07:15:07Z"}
    join(waiting, answered)
    second = join(waiting, create())
    assert [("gpt-4o-mini-2024-07-18", 10)] == [
        (record.request_model, record.input_tokens) for record in records(second)
    ]


def test_a_half_that_comes_again_is_counted_once() -> None:
    """The sender never heard our answer and repeats the request."""
    waiting = room()
    first, again = join(waiting, create()), join(waiting, create())
    assert (1, 0) == (first.pending, again.pending)
    assert 1 == len(waiting)


def test_an_old_half_that_comes_again_takes_nothing_back() -> None:
    """A repeat has the time stamps of its first."""
    waiting = room()
    join(waiting, create())
    told = update(model="gpt-4o", endTime=None, usageDetails=None) | {"timestamp": "2026-11-20T07:15:07Z"}
    join(waiting, told)
    join(waiting, create())
    (record,) = records(join(waiting, update()))
    assert "gpt-4o" == record.request_model


def test_a_whole_report_makes_its_half_obsolete() -> None:
    """A second create with everything in it; what only the half knew is taken over."""
    waiting = room()
    join(waiting, create())
    outcome = join(waiting, create(startTime=None, model=None, usageDetails={"input": 1, "output": 1}))
    assert (-1, 1, 1) == (outcome.pending, len(outcome.records), len(outcome.forget))
    (record,) = records(outcome)
    assert (True, "gpt-4o-mini") == (record.start_time is not None, record.request_model)


def test_what_is_said_of_a_call_on_record_is_no_half() -> None:
    """The end first, the usage in a later request, and every repeat: the same call at once, under the same identity."""
    waiting = room()
    join(waiting, create())
    ended = join(waiting, update(usageDetails=None))
    used = join(waiting, update())
    for events in ((create(),), (update(),), (create(), update())):
        again = join(waiting, *events)
        assert (0, [10]) == (again.pending, [record.input_tokens for record in records(again)])
    assert ([None], [10], 0) == (
        [record.input_tokens for record in records(ended)],
        [record.input_tokens for record in records(used)],
        used.pending,
    )
    assert ended.identities == used.identities
    assert 0 == len(waiting)


def test_an_id_that_attempts_share_does_not_split_a_call_on_record() -> None:
    """LiteLLM's call id is known with its tokens: what comes later keeps the identity that the record has."""
    waiting = room()
    shared = "time-14-13-16-469836_31aec259-5224-4903-ad2a-91ade65c0987"
    first = join(waiting, create(shared, endTime="2026-11-20T07:15:07Z"))
    later = join(waiting, update(shared))
    assert first.identities == later.identities
    assert [record.id for record in first.records] == [record.id for record in later.records]


def test_a_generation_that_names_no_model_yet_waits() -> None:
    """Ended without usage and model it is no call, until an update says more."""
    waiting = room()
    first = join(waiting, create(model=None, endTime="2026-11-20T07:15:07Z"))
    assert (1, []) == (first.pending, first.records)
    outcome = join(waiting, update(model="gpt-4o"))
    assert [("gpt-4o", 10)] == [(record.request_model, record.input_tokens) for record in records(outcome)]
    join(waiting, create("g-2", model=None, endTime="2026-11-20T07:15:07Z"))
    (released,) = waiting.released(now=600.0)
    assert ({NOT_AI: 1}, -1) == (dict(released.outcome.ignored), released.outcome.pending)


def test_a_trace_of_another_batch_says_who_called() -> None:
    """Before the generation, for whole and for halved ones; a later trace event adds to it."""
    waiting = room()
    join(waiting, trace(userId=None), create())
    join(waiting, trace(sessionId=None, tags=["beta"]))
    halved = join(waiting, update())
    whole = join(waiting, create("g-2", endTime="2026-11-20T07:15:07Z"))
    expected = [("u-1", "s-1", {"env": "prod", "beta": "true"})]
    for outcome in (halved, whole):
        assert expected == [(record.user, record.session, record.tags) for record in records(outcome)]


def test_a_trace_that_comes_after_its_calls_says_who_made_those_that_are_open() -> None:
    """An amendment of each: the same identity and figures, counted as split off the trace's event. Later ones none."""
    waiting = room(hold_s=10)
    join(waiting, create("old"), update("old"), now=0.0)
    first = join(waiting, create(), update(), now=5.0)
    after = join(waiting, trace(), now=11.0)
    assert ([("u-1", "s-1", 10)], 1) == (
        [(record.user, record.session, record.input_tokens) for record in records(after)], after.split,
    )  # fmt: skip
    assert first.identities == after.identities
    assert [] == join(waiting, trace(), now=12.0).records  # it says nothing new
    assert [] == join(waiting, trace(userId="u-2"), now=15.0).records


def test_a_trace_is_remembered_while_its_calls_ask_for_it() -> None:
    """Long sessions: the window begins again with each of them."""
    waiting = room()
    join(waiting, trace(), now=0.0)
    for minute in range(5, 30, 5):
        outcome = join(waiting, create(f"g-{minute}"), update(f"g-{minute}"), now=minute * 60.0)
        assert [] == waiting.released(now=minute * 60.0)
        assert ["u-1"] == [record.user for record in records(outcome)]


def test_many_trace_events_do_not_pile_up_tags() -> None:
    """The bound is that of every record; what is over it is counted."""
    waiting = room()
    for number in range(10):
        outcome = join(waiting, trace(tags=[f"tag-{number}-{place}" for place in range(8)]))
    assert 8 == outcome.left_out
    (record,) = records(join(waiting, create(), update()))
    assert 32 == len(record.tags)


def test_nobody_completes_what_another_key_reported() -> None:
    """The same id under two keys is two halves, and a trace names users for its own sender only."""
    waiting = room()
    join(waiting, create())
    outcome = join(waiting, update(), trace(userId="mallory"), sender=BOB)
    assert (1, []) == (outcome.pending, outcome.records)
    mine = join(waiting, update())
    assert [None] == [record.user for record in records(mine)]


def test_when_the_window_ends_the_generation_is_released_as_it_is() -> None:
    """Under its own sender and with its trace, and the books get it back out of pending."""
    waiting = room()
    join(waiting, trace(), create(), now=100.0)
    join(waiting, update("g-9", model="gpt-4o"), sender=BOB, now=100.0)
    assert [] == waiting.released(now=699.0)
    released = waiting.released(now=700.0)
    assert ([(ALICE, -1), (BOB, -1)], 0) == ([(one.sender, one.outcome.pending) for one in released], len(waiting))
    assert [("gpt-4o-mini", None, "u-1"), ("gpt-4o", 10, None)] == [
        (record.request_model, record.input_tokens, record.user) for one in released for record in records(one.outcome)
    ]
    for one in released:
        assert sorted(one.entries) == sorted(one.outcome.forget)
        assert_balanced(one.outcome)


def test_what_a_request_has_in_hand_is_not_released() -> None:
    """It is about to become a record with its other half."""
    waiting = room()
    join(waiting, create(), now=0.0)
    busy = keys_of(read("langfuse", batch(update())), ALICE)
    assert [] == waiting.released(now=600.0, busy=busy)
    assert 1 == len(waiting.released(now=600.0))


def test_a_restart_finds_what_was_kept() -> None:
    """Halves and traces, from the bytes on disk alone; what is damaged there is counted and spoils no other."""
    before, after = room(), room()
    kept = join(before, trace(), create()).keep
    assert 1 == after.load([*kept, PartialReport(b"x", 0.0, b"\xc1")])
    assert [("gpt-4o-mini", 10, "u-1")] == [
        (record.request_model, record.input_tokens, record.user) for record in records(join(after, update()))
    ]


def test_no_damaged_byte_keeps_the_house_from_starting_or_releasing() -> None:
    """Whatever one byte of a half became on disk, it is read, or counted as damaged; nothing fails because of it."""
    kept = join(room(), trace(), create()).keep
    for half in kept:
        for place in range(len(half.body)):
            body = bytearray(half.body)
            body[place] ^= 0x80
            waiting = room()
            damaged = waiting.load([half._replace(body=bytes(body))])
            released = waiting.released(now=600.0)
            assert 1 == damaged + sum(len(one.entries) for one in released)


def test_a_refused_request_leaves_no_trace() -> None:
    """Its sender comes again, and everything happens as if for the first time."""
    waiting = room()
    _, before = begin(waiting, create())
    waiting.undo(before)
    assert 0 == len(waiting)
    join(waiting, create())
    _, before = begin(waiting, update())
    waiting.undo(before)
    outcome = join(waiting, update())
    assert (1, -1) == (len(outcome.records), outcome.pending)


def test_what_could_not_be_made_a_record_is_the_next_to_go() -> None:
    """A full disk when the window ended."""
    waiting = room()
    join(waiting, create(), now=0.0)
    join(waiting, create("g-2"), now=1.0)
    (first,) = waiting.released(now=600.0)
    waiting.restore(first)
    assert [list(first.entries)] == [list(one.entries) for one in waiting.released(now=600.0)]


def test_the_window_is_bounded_by_number_and_bytes() -> None:
    """The oldest make room: released as they are, never lost."""
    waiting = room(max_halves=3)
    for number in range(3):
        join(waiting, create(f"g-{number}"), now=float(number))
    assert not waiting.is_over_full
    for number in range(3, 5):
        join(waiting, create(f"g-{number}"), now=float(number))
    assert waiting.is_over_full
    (released,) = waiting.released(now=5.0)
    assert (["g-0", "g-1"], 3) == ([record.request_id for record in records(released.outcome)], len(waiting))
    small = room(max_bytes=1)
    join(small, create())
    assert 1 == len(small.released(now=0.0))


def test_traces_make_room_before_halves() -> None:
    """A busy hour of traces takes the user from a late call, but no call its usage; the oldest trace goes first."""
    waiting = room(max_halves=3)
    join(waiting, create("a", traceId="t-0"), now=0.0)
    for number in range(4):
        join(waiting, trace(f"t-{number}"), now=1.0 + number)
    assert waiting.is_over_full
    (released,) = waiting.released(now=5.0)
    assert ([], 2, 0) == (records(released.outcome), len(released.entries), released.outcome.pending)
    assert not waiting.is_over_full
    assert [("a", 10, None)] == [
        (record.request_id, record.input_tokens, record.user) for record in records(join(waiting, update("a")))
    ]
    (late,) = records(join(waiting, create("b", traceId="t-3", endTime="2026-11-20T07:15:07Z")))
    assert "u-1" == late.user


def test_a_trace_that_names_nobody_takes_no_room() -> None:
    """LiteLLM writes one beside every call."""
    waiting = room()
    outcome = join(waiting, trace(userId=None, sessionId=None, tags=[]))
    assert ([], 0, {NOT_AI: 1}) == (outcome.keep, len(waiting), dict(outcome.ignored))


def test_what_is_on_record_is_remembered_within_bounds() -> None:
    """By number and by time: what comes later waits like any half, and meets its record in the log."""
    waiting = room(max_halves=2)
    for number in range(3):
        join(waiting, create(f"g-{number}"), update(f"g-{number}"), now=float(number))
    assert [1, 0, 0] == [join(waiting, update(f"g-{number}"), now=3.0).pending for number in range(3)]
    join(waiting, create("new"), update("new"), now=700.0)
    assert 1 == join(waiting, update("g-2"), now=700.0).pending


def test_a_trace_of_many_calls_on_record_names_them_in_turns() -> None:
    """Each of the open ones gets its user, whatever else is told while the loop has its turn."""
    waiting, before = room(hold_s=10), Before()
    ids = [f"g-{number}" for number in range(2 * TURN)]
    join(waiting, *(create(own_id, endTime="2026-11-20T07:15:07Z") for own_id in ids))
    outcome = read("langfuse", batch(trace()))
    turns = 0
    for turns, _ in enumerate(waiting.join(outcome, before, sender=ALICE, now=1.0), start=1):
        join(waiting, create(f"other-{turns}"), update(f"other-{turns}"), now=1.0)
    assert 2 == turns
    assert [(own_id, "u-1") for own_id in ids] == [(record.request_id, record.user) for record in records(outcome)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_large_batch_is_joined_and_released_in_turns(restarted: bool) -> None:
    """Neither stops the house for long; the trace is there until its last generation is released."""
    waiting, before = room(), Before()
    outcome = read("langfuse", batch(trace(), *(create(f"g-{number}") for number in range(2 * TURN))))
    assert 2 == sum(1 for _ in waiting.join(outcome, before, sender=ALICE, now=0.0))
    if restarted:
        waiting = room()
        waiting.load(outcome.keep)
    turns = [waiting.released(now=600.0) for _ in range(4)]
    assert [TURN, TURN, 1, 0] == [sum(len(one.entries) for one in turn) for turn in turns]
    released = [record for turn in turns for one in turn for record in records(one.outcome)]
    assert (2 * TURN, {"u-1"}) == (len(released), {record.user for record in released})
