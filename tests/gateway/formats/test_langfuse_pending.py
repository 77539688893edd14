"""The merge window: halves in different requests, repeats, restarts, refusals and bounds."""

from __future__ import annotations

from gateway.normalise.formats.langfuse_pending import Changes, Sender, Waiting
from gateway.normalise.outcome import MERGED, Outcome
from spool.record import Inference
from tests.gateway.formats.langfuse_events import batch, create, trace, update
from tests.gateway.formats.payloads import assert_balanced, read

ALICE, BOB = Sender("alice", {"team": "search"}), Sender("bob")


def join(waiting: Waiting, *events: object, sender: Sender = ALICE, now: float = 0.0) -> tuple[Outcome, Changes]:
    outcome = read("langfuse", batch(*events))
    changes = waiting.join(outcome, sender=sender, now=now)
    assert_balanced(outcome)
    return outcome, changes


def records(outcome: Outcome) -> list[Inference]:
    return [record for record in outcome.records if isinstance(record, Inference)]


def test_a_create_waits_for_its_update():
    """The call is one record, with the model of the one and the tokens of the other; nothing is pending any more."""
    waiting = Waiting()
    first, kept = join(waiting, create())
    second, resolved = join(waiting, update())
    (record,) = records(second)
    assert ("gpt-4o-mini", 10, 4) == (record.request_model, record.input_tokens, record.output_tokens)
    assert (1, -1, {MERGED: 1}) == (first.pending, second.pending, dict(second.ignored))
    assert [half.key for half in kept.keep] == resolved.forget
    assert 0 == len(waiting)


def test_an_update_waits_for_its_create():
    """Requests overtake one another."""
    waiting = Waiting()
    join(waiting, update())
    second, _ = join(waiting, create())
    assert [("gpt-4o-mini", 10)] == [(record.request_model, record.input_tokens) for record in records(second)]


def test_a_half_that_comes_again_is_counted_once():
    """The sender never heard our answer and repeats the request."""
    waiting = Waiting()
    first, _ = join(waiting, create())
    again, _ = join(waiting, create())
    assert (1, 0) == (first.pending, again.pending)
    assert 1 == len(waiting)


def test_a_whole_report_makes_its_half_obsolete():
    """A second create with everything in it; what only the half knew is taken over."""
    waiting = Waiting()
    join(waiting, create())
    outcome, changes = join(waiting, create(startTime=None, usageDetails={"input": 1, "output": 1}))
    assert (-1, 1, 1) == (outcome.pending, len(outcome.records), len(changes.forget))
    assert records(outcome)[0].start_time is not None


def test_a_trace_of_another_batch_says_who_called():
    """Before the generation, for whole and for halved ones; a later trace event adds to it."""
    waiting = Waiting()
    join(waiting, trace(userId=None), create())
    join(waiting, trace(sessionId=None, tags=["beta"]))
    halved, _ = join(waiting, update())
    whole, _ = join(waiting, create("g-2", endTime="2026-11-20T07:15:07Z"))
    expected = [("u-1", "s-1", {"env": "prod", "beta": "true"})]
    for outcome in (halved, whole):
        assert expected == [(record.user, record.session, record.tags) for record in records(outcome)]


def test_nobody_completes_what_another_key_reported():
    """The same id under two keys is two halves, and a trace names users for its own sender only."""
    waiting = Waiting()
    join(waiting, create())
    outcome, _ = join(waiting, update(), trace(userId="mallory"), sender=BOB)
    assert (1, []) == (outcome.pending, outcome.records)
    mine, _ = join(waiting, update())
    assert [None] == [record.user for record in records(mine)]


def test_when_the_window_ends_the_generation_is_released_as_it_is():
    """Under its own sender, and the books get it back out of pending."""
    waiting = Waiting()
    join(waiting, trace(), create(), now=100.0)
    assert [] == waiting.released(now=699.0)
    released = waiting.released(now=700.0)
    (generation,) = (one for one in released if one.outcome.pending)
    assert (ALICE, -1, 0) == (generation.sender, generation.outcome.pending, len(waiting))
    assert [("gpt-4o-mini", None)] == [
        (record.request_model, record.input_tokens) for record in records(generation.outcome)
    ]
    assert_balanced(generation.outcome)


def test_a_restart_finds_what_was_kept():
    """Halves and traces, from the bytes on disk alone."""
    before, after = Waiting(), Waiting()
    _, changes = join(before, trace(), create())
    after.load(changes.keep)
    outcome, _ = join(after, update())
    assert [("gpt-4o-mini", 10, "u-1")] == [
        (record.request_model, record.input_tokens, record.user) for record in records(outcome)
    ]


def test_a_refused_request_leaves_no_trace():
    """Its sender comes again, and everything happens as if for the first time."""
    waiting = Waiting()
    _, refused = join(waiting, create())
    waiting.undo(refused)
    assert 0 == len(waiting)
    join(waiting, create())
    _, refused = join(waiting, update())
    waiting.undo(refused)
    outcome, _ = join(waiting, update())
    assert (1, -1) == (len(outcome.records), outcome.pending)


def test_what_could_not_be_made_a_record_is_the_next_to_go():
    """A full disk when the window ended."""
    waiting = Waiting()
    join(waiting, create(), now=0.0)
    join(waiting, create("g-2"), now=1.0)
    (first,) = waiting.released(now=600.0)
    waiting.restore(first)
    assert [first.key] == [one.key for one in waiting.released(now=600.0)]


def test_the_window_is_bounded_by_number_and_bytes():
    """The oldest make room: released as they are, never lost."""
    waiting = Waiting(max_halves=3)
    for number in range(5):
        join(waiting, create(f"g-{number}"), now=float(number))
    assert waiting.is_over_full
    released = waiting.released(now=5.0)
    assert (["g-0", "g-1"], 3) == (
        [record.request_id for one in released for record in records(one.outcome)],
        len(waiting),
    )
    small = Waiting(max_bytes=1)
    join(small, create())
    assert 1 == len(small.released(now=0.0))
