"""Merging of Langfuse's partial reports across requests, repeats, restarts, refusals and limits."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from gateway.normalise.formats.langfuse.generations import TURN
from gateway.normalise.formats.langfuse.merger import (
    BatchMerge,
    ReleasedReports,
    ReportMerger,
    Sender,
    keys_of_reports,
)
from gateway.normalise.outcome import MERGED, NOT_AI
from spool.log.partial_reports import PartialReport
from spool.record import Inference
from tests.gateway.normalise.formats.langfuse.events import batch, create, trace, update
from tests.gateway.normalise.formats.payloads import assert_balanced, read_batch

merger_of = partial(ReportMerger, window_s=600.0, hold_s=0.0, max_reports=20_000, max_bytes=2**24)
ALICE, BOB = Sender("alice", {"team": "search"}), Sender("bob")


def merged(merger: ReportMerger, *events: object, sender: Sender = ALICE, now: float = 0.0) -> BatchMerge:
    merge = begun(*events, sender=sender, now=now)
    for _ in merger.merge_batch(merge):
        pass
    assert_balanced(merge.outcome, waiting=merge.pending.count)
    return merge


def begun(*events: object, sender: Sender = ALICE, now: float = 0.0) -> BatchMerge:
    outcome, reports = read_batch("langfuse", batch(*events))
    return BatchMerge(outcome=outcome, reports=reports, sender=sender, now=now)


def records(yielded: BatchMerge | ReleasedReports) -> list[Inference]:
    return [record for record in yielded.outcome.records if isinstance(record, Inference)]


def test_a_create_waits_for_its_update() -> None:
    """
    Create and update make one record with the model of one and the tokens of the other. Nothing stays pending.
    """
    merger = merger_of()
    first, second = merged(merger, create()), merged(merger, update())
    (record,) = records(second)
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens == 10
    assert record.output_tokens == 4
    assert first.pending.count == 1
    assert second.pending.count == -1
    assert dict(second.outcome.ignored) == {MERGED: 1}
    assert [report.key for report in first.pending.keep] == second.pending.forget
    assert 0 == len(merger)


def test_an_update_waits_for_its_create() -> None:
    """
    An update may arrive before its create. The model of the answer stays, because the update's event is later.
    """
    merger = merger_of()
    answered = update(model="gpt-4o-mini-2024-07-18") | {"timestamp": "2026-11-20T07:15:07Z"}
    merged(merger, answered)
    second = merged(merger, create())
    assert [("gpt-4o-mini-2024-07-18", 10)] == [
        (record.request_model, record.input_tokens) for record in records(second)
    ]


def test_repeated_partial_report_is_counted_once() -> None:
    """
    If the sender did not receive the first response and repeats its request, the partial report counts once.
    """
    merger = merger_of()
    first, again = merged(merger, create()), merged(merger, create())
    assert first.pending.count == 1
    assert again.pending.count == 0
    assert 1 == len(merger)


def test_repeated_old_report_changes_nothing() -> None:
    """A repeated old report changes nothing, because it has the timestamps of the first report."""
    merger = merger_of()
    merged(merger, create())
    told = update(model="gpt-4o", endTime=None, usageDetails=None) | {"timestamp": "2026-11-20T07:15:07Z"}
    merged(merger, told)
    merged(merger, create())
    (record,) = records(merged(merger, update()))
    assert "gpt-4o" == record.request_model


def test_a_whole_report_completes_the_partial_one() -> None:
    """A second create event has all fields. Fields that only the partial report has are added to it."""
    merger = merger_of()
    merged(merger, create())
    merge = merged(merger, create(startTime=None, model=None, usageDetails={"input": 1, "output": 1}))
    assert merge.pending.count == -1
    assert len(merge.outcome.records) == 1
    assert len(merge.pending.forget) == 1
    (record,) = records(merge)
    assert record.start_time is not None
    assert record.request_model == "gpt-4o-mini"


def test_a_report_on_a_recorded_call_is_not_partial() -> None:
    """
    The end of a call arrives first, and its usage in a later request. The later report does not wait, and all
    reports and repeats have the same dedup key.
    """
    merger = merger_of()
    merged(merger, create())
    ended = merged(merger, update(usageDetails=None))
    used = merged(merger, update())
    for events in ((create(),), (update(),), (create(), update())):
        again = merged(merger, *events)
        assert again.pending.count == 0
        assert [record.input_tokens for record in records(again)] == [10]
    assert [record.input_tokens for record in records(ended)] == [None]
    assert [record.input_tokens for record in records(used)] == [10]
    assert used.pending.count == 0
    assert ended.outcome.identities == used.outcome.identities
    assert 0 == len(merger)


def test_an_id_that_attempts_share_does_not_split_a_call_on_record() -> None:
    """
    Several attempts share LiteLLM's call id, so it identifies a call only together with the tokens. Later
    reports keep the dedup key of the record.
    """
    merger = merger_of()
    shared = "time-14-13-16-469836_31aec259-5224-4903-ad2a-91ade65c0987"
    first = merged(merger, create(shared, endTime="2026-11-20T07:15:07Z"))
    later = merged(merger, update(shared))
    assert first.outcome.identities == later.outcome.identities
    assert [record.id for record in first.outcome.records] == [record.id for record in later.outcome.records]


def test_a_generation_that_names_no_model_yet_waits() -> None:
    """A generation that ended without usage or model is not a call until an update adds them."""
    merger = merger_of()
    first = merged(merger, create(model=None, endTime="2026-11-20T07:15:07Z"))
    assert first.pending.count == 1
    assert first.outcome.records == []
    merge = merged(merger, update(model="gpt-4o"))
    assert [("gpt-4o", 10)] == [(record.request_model, record.input_tokens) for record in records(merge)]
    merged(merger, create("g-2", model=None, endTime="2026-11-20T07:15:07Z"))
    (released,) = merger.release_due_reports(now=600.0)
    assert dict(released.outcome.ignored) == {NOT_AI: 1}
    assert released.pending.count == -1


def test_a_trace_of_another_batch_says_who_called() -> None:
    """
    A trace event of another batch sets the user of complete and partial reports. A later trace event
    adds its fields.
    """
    merger = merger_of()
    merged(merger, trace(userId=None), create())
    merged(merger, trace(sessionId=None, tags=["beta"]))
    completed = merged(merger, update())
    whole = merged(merger, create("g-2", endTime="2026-11-20T07:15:07Z"))
    expected = [("u-1", "s-1", {"env": "prod", "beta": "true"})]
    for merge in (completed, whole):
        assert expected == [(record.user, record.session, record.tags) for record in records(merge)]


def test_later_trace_names_the_user_of_open_calls() -> None:
    """
    A trace event arrives after the calls of its trace. Each open call gets an added report with the same
    dedup key and values, which the accounting counts as split from the trace event. Closed calls get none.
    """
    merger = merger_of(hold_s=10)
    merged(merger, create("old"), update("old"), now=0.0)
    first = merged(merger, create(), update(), now=5.0)
    after = merged(merger, trace(), now=11.0)
    assert [(record.user, record.session, record.input_tokens) for record in records(after)] == [
        ("u-1", "s-1", 10)
    ]
    assert after.outcome.split == 1
    assert first.outcome.identities == after.outcome.identities
    assert [] == merged(merger, trace(), now=12.0).outcome.records  # the same trace event again adds nothing
    assert [] == merged(merger, trace(userId="u-2"), now=15.0).outcome.records


def test_trace_is_remembered_while_its_calls_arrive() -> None:
    """
    A trace is remembered while calls of it arrive: each call restarts the window, so a long session keeps it.
    """
    merger = merger_of()
    merged(merger, trace(), now=0.0)
    for minute in range(5, 30, 5):
        merge = merged(merger, create(f"g-{minute}"), update(f"g-{minute}"), now=minute * 60.0)
        assert [] == merger.release_due_reports(now=minute * 60.0)
        assert ["u-1"] == [record.user for record in records(merge)]


def test_many_trace_events_do_not_pile_up_tags() -> None:
    """
    The tag limit of a record also applies to all trace events together. Tags beyond the limit are counted.
    """
    merger = merger_of()
    for number in range(10):
        merge = merged(merger, trace(tags=[f"tag-{number}-{place}" for place in range(8)]))
    assert 8 == merge.outcome.left_out
    (record,) = records(merged(merger, create(), update()))
    assert 32 == len(record.tags)


def test_nobody_completes_what_another_key_reported() -> None:
    """The same id under two keys is two partial reports. A trace sets users only for its own sender."""
    merger = merger_of()
    merged(merger, create())
    merge = merged(merger, update(), trace(userId="mallory"), sender=BOB)
    assert merge.pending.count == 1
    assert merge.outcome.records == []
    mine = merged(merger, update())
    assert [None] == [record.user for record in records(mine)]


def test_when_the_window_ends_the_generation_is_released_as_it_is() -> None:
    """
    At the end of the window, a partial report becomes a record with its own sender and trace. The accounting
    then no longer counts it as pending.
    """
    merger = merger_of()
    merged(merger, trace(), create(), now=100.0)
    merged(merger, update("g-9", model="gpt-4o"), sender=BOB, now=100.0)
    assert [] == merger.release_due_reports(now=699.0)
    released = merger.release_due_reports(now=700.0)
    assert [(one.sender, one.pending.count) for one in released] == [(ALICE, -1), (BOB, -1)]
    assert len(merger) == 0
    assert [("gpt-4o-mini", None, "u-1"), ("gpt-4o", 10, None)] == [
        (record.request_model, record.input_tokens, record.user)
        for one in released
        for record in records(one)
    ]
    for one in released:
        assert sorted(one.reports) == sorted(one.pending.forget)
        assert_balanced(one.outcome, waiting=one.pending.count)


def test_what_a_request_has_in_hand_is_not_released() -> None:
    """While a running request completes a partial report, the report is not released."""
    merger = merger_of()
    merged(merger, create(), now=0.0)
    busy = keys_of_reports(begun(update()).reports, ALICE)
    assert [] == merger.release_due_reports(now=600.0, busy=busy)
    assert 1 == len(merger.release_due_reports(now=600.0))


def test_restart_reads_stored_partial_reports_and_traces() -> None:
    """
    After a restart, partial reports and traces are read from their stored bytes. A damaged one is counted,
    and the others are still read.
    """
    before, after = merger_of(), merger_of()
    kept = merged(before, trace(), create()).pending.keep
    assert 1 == after.load_waiting_reports([*kept, PartialReport(b"x", 0.0, b"\xc1")])
    assert [("gpt-4o-mini", 10, "u-1")] == [
        (record.request_model, record.input_tokens, record.user)
        for record in records(merged(after, update()))
    ]


def test_calls_on_record_of_another_process_are_no_damaged_reports() -> None:
    kept = merged(merger_of(is_shared=True), trace(), create(), update()).pending.keep
    assert 0 == merger_of(is_shared=True).load_waiting_reports(kept)


def test_reports_of_the_first_release_are_read() -> None:
    """
    Partial reports of the first release are still read, because the stored field names do not depend
    on class names.
    """
    sender = {"name": "alice", "labels": {"team": "search"}, "device": None}
    facts = msgspec.msgpack.encode({"id": "g-1", "model": "gpt-4o-mini", "created": True})
    body = msgspec.msgpack.encode({"sender": sender, "kind": "generation", "facts": facts, "at": 1.0})
    merger = merger_of()
    assert 0 == merger.load_waiting_reports(
        [PartialReport(keys_of_reports(begun(create()).reports, ALICE).pop(), 1.0, body)]
    )
    assert [("gpt-4o-mini", 10)] == [
        (record.request_model, record.input_tokens) for record in records(merged(merger, update()))
    ]


def test_no_damaged_byte_keeps_tollhouse_from_starting_or_releasing() -> None:
    """Whichever byte of a report is damaged, the report is read or counted as damaged, and nothing fails."""
    kept = merged(merger_of(), trace(), create()).pending.keep
    for report in kept:
        for place in range(len(report.body)):
            body = bytearray(report.body)
            body[place] ^= 0x80
            merger = merger_of()
            damaged = merger.load_waiting_reports([report._replace(body=bytes(body))])
            released = merger.release_due_reports(now=600.0)
            assert 1 == damaged + sum(len(one.reports) for one in released)


def test_a_refused_request_leaves_no_trace() -> None:
    """A refused request leaves no trace, so its repeat has the same effect as a first request."""
    merger = merger_of()
    merger.undo_merge(merged(merger, create()))
    assert 0 == len(merger)
    merged(merger, create())
    merger.undo_merge(merged(merger, update()))
    merge = merged(merger, update())
    assert len(merge.outcome.records) == 1
    assert merge.pending.count == -1


def test_what_could_not_be_made_a_record_is_the_next_to_go() -> None:
    """If the disk is full when the window ends, the report is the next to be released."""
    merger = merger_of()
    merged(merger, create(), now=0.0)
    merged(merger, create("g-2"), now=1.0)
    (first,) = merger.release_due_reports(now=600.0)
    merger.put_back_released_reports(first)
    assert [list(first.reports)] == [list(one.reports) for one in merger.release_due_reports(now=600.0)]


def test_the_window_is_bounded_by_number_and_bytes() -> None:
    """
    The window is limited by number and by bytes. Above a limit, the oldest reports are released unmerged
    and never lost.
    """
    merger = merger_of(max_reports=3)
    for number in range(3):
        merged(merger, create(f"g-{number}"), now=float(number))
    assert not merger.exceeds_limits
    for number in range(3, 5):
        merged(merger, create(f"g-{number}"), now=float(number))
    assert merger.exceeds_limits
    (released,) = merger.release_due_reports(now=5.0)
    assert [record.request_id for record in records(released)] == ["g-0", "g-1"]
    assert len(merger) == 3
    small = merger_of(max_bytes=1)
    merged(small, create())
    assert 1 == len(small.release_due_reports(now=0.0))


@pytest.mark.parametrize("bound", [{"max_reports": 3}, {"max_bytes": 600}])
def test_a_key_that_fills_the_window_makes_room_for_others(bound: dict[str, int]) -> None:
    """
    If one key fills the window, only its own oldest reports are released early, even if a report of another
    key is older.
    """
    merger: ReportMerger = merger_of(**bound)  # type: ignore[arg-type]
    merged(merger, create("b-0"), sender=BOB, now=0.0)
    number = 0
    while not merger.exceeds_limits or number < 5:
        merged(merger, create(f"a-{number}"), now=1.0 + number)
        number += 1
    (released,) = merger.release_due_reports(now=number + 1.0)
    assert released.sender == ALICE
    assert records(released)[0].request_id == "a-0"
    assert not merger.exceeds_limits
    assert ["b-0"] == [
        one.request_id for one in records(merged(merger, update("b-0"), sender=BOB, now=number + 2.0))
    ]


def test_traces_make_room_before_generations() -> None:
    """
    If space runs out, traces are dropped before generations, the oldest first. A late call may then lose its
    user, but never its usage.
    """
    merger = merger_of(max_reports=3)
    merged(merger, create("a", traceId="t-0"), now=0.0)
    for number in range(4):
        merged(merger, trace(f"t-{number}"), now=1.0 + number)
    assert merger.exceeds_limits
    (released,) = merger.release_due_reports(now=5.0)
    assert records(released) == []
    assert len(released.reports) == 2
    assert released.pending.count == 0
    assert not merger.exceeds_limits
    assert [("a", 10, None)] == [
        (record.request_id, record.input_tokens, record.user)
        for record in records(merged(merger, update("a")))
    ]
    (late,) = records(merged(merger, create("b", traceId="t-3", endTime="2026-11-20T07:15:07Z")))
    assert "u-1" == late.user


def test_trace_without_a_user_is_not_stored() -> None:
    """A trace without a user is not stored. LiteLLM writes such a trace for every call."""
    merger = merger_of()
    merge = merged(merger, trace(userId=None, sessionId=None, tags=[]))
    assert merge.pending.keep == []
    assert len(merger) == 0
    assert dict(merge.outcome.ignored) == {NOT_AI: 1}


def test_what_is_on_record_is_remembered_within_bounds() -> None:
    """
    The memory of recorded calls is limited by number and by time. After that, later reports wait as partial
    reports and match their record in the log.
    """
    merger = merger_of(max_reports=2)
    for number in range(3):
        merged(merger, create(f"g-{number}"), update(f"g-{number}"), now=float(number))
    assert [1, 0, 0] == [merged(merger, update(f"g-{number}"), now=3.0).pending.count for number in range(3)]
    merged(merger, create("new"), update("new"), now=700.0)
    assert 1 == merged(merger, update("g-2"), now=700.0).pending.count


def test_a_trace_of_many_calls_on_record_names_them_in_turns() -> None:
    """
    If a trace event names many recorded calls, each open call gets its user, and the event loop gets
    turns in between.
    """
    merger = merger_of(hold_s=10)
    ids = [f"g-{number}" for number in range(2 * TURN)]
    merged(merger, *(create(own_id, endTime="2026-11-20T07:15:07Z") for own_id in ids))
    merge = begun(trace(), now=1.0)
    turns = 0
    for turns, _ in enumerate(merger.merge_batch(merge), start=1):
        merged(merger, create(f"other-{turns}"), update(f"other-{turns}"), now=1.0)
    assert 2 == turns
    assert [(own_id, "u-1") for own_id in ids] == [
        (record.request_id, record.user) for record in records(merge)
    ]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_large_batch_is_joined_and_released_in_turns(restarted: bool) -> None:
    """
    Joining and releasing yield to the event loop, and the trace stays until its last generation is released.
    """
    merger = merger_of()
    merge = begun(trace(), *(create(f"g-{number}") for number in range(2 * TURN)))
    assert 2 == sum(1 for _ in merger.merge_batch(merge))
    if restarted:
        merger = merger_of()
        merger.load_waiting_reports(merge.pending.keep)
    turns = [merger.release_due_reports(now=600.0) for _ in range(4)]
    assert [TURN, TURN, 1, 0] == [sum(len(one.reports) for one in turn) for turn in turns]
    released = [record for turn in turns for one in turn for record in records(one)]
    assert len(released) == 2 * TURN
    assert {record.user for record in released} == {"u-1"}


LAPTOP = msgspec.structs.replace(ALICE, named="laptop-1")


@pytest.mark.parametrize(("senders", "expected"), [((LAPTOP, ALICE), {0: "laptop-1"}), ((ALICE, LAPTOP), {})])
def test_the_device_of_one_half_is_that_of_the_call(
    senders: tuple[Sender, Sender], expected: dict[int, str]
) -> None:
    """
    If only the first half's request names the device, it is stored with that half. A later half has the
    device of its key.
    """
    merger = merger_of()
    merged(merger, create(), sender=senders[0])
    assert expected == merged(merger, update(), sender=senders[1]).outcome.named


def test_the_device_of_a_half_outlives_a_restart_and_further_halves() -> None:
    """The device of a partial report is stored with it. A later half without a device does not remove it."""
    before = merger_of()
    merged(before, create(), sender=LAPTOP)
    second = merged(before, create(), sender=ALICE)
    after = merger_of()
    after.load_waiting_reports(second.pending.keep)
    (released,) = after.release_due_reports(now=601.0)
    assert "laptop-1" == released.sender.named
