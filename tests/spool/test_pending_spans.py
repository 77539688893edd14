"""Remembered spans: the limit, the age, and spans of commits that failed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec import msgpack, structs

from spool.log.partial_reports import PartialReport
from spool.log.pending_spans import (
    KEPT_S,
    MANY,
    PLAIN,
    RUN,
    STEP,
    CallBelow,
    GivenValues,
    LinkedSpan,
    PendingSpans,
    SpanStep,
)
from spool.record import Inference

NOON = 1_700_000_000.0
TRACE = f"{1:032x}"
ANN = GivenValues(user="ann", tags=(("agent", "outer"), ("branch", "main")))
BOB = GivenValues(user="bob")


def id_of(number: int) -> str:
    return f"{number:016x}"


def span(number: int, sender: str = "alice") -> LinkedSpan:
    return LinkedSpan(sender, TRACE, number.to_bytes(8))


def step(
    number: int, above: int | None, kind: int = STEP, given_values: GivenValues | None = None
) -> SpanStep:
    return TRACE, id_of(number), None if above is None else id_of(above), kind, given_values


def call(number: int, above: str, place: int) -> CallBelow:
    return Inference(id=b"", source="otel", trace_id=TRACE, span_id=id_of(number)), above, place


def add(spans: PendingSpans, *steps: SpanStep, sender: str = "alice") -> int:
    """Add steps, and return the number of new spans."""
    return len(spans.add_spans_without_calls(sender, steps))


def commit(spans: PendingSpans, at: float = NOON) -> list[PartialReport]:
    """Confirm the new spans as a commit does. Return the stored rows."""
    rows = spans.rows_of_new_spans(at)
    spans.confirm_committed_rows(rows, spans.rows_to_delete(at))
    spans.undo_new_spans()
    return rows


def loaded(rows: Iterable[PartialReport], most: int = 100) -> PendingSpans:
    spans = PendingSpans(most)
    assert 0 == spans.load_rows(rows)
    return spans


def test_a_call_gets_the_runs_above_it() -> None:
    spans = PendingSpans(100)
    assert [] == spans.add_calls_and_select_linkable("alice", [call(5, id_of(4), 70)])
    assert [] == spans.values_from_spans_above(span(5)).runs
    rows = commit(spans)
    add(spans, step(2, None, RUN), step(3, 2, RUN))
    rows += commit(spans)
    for each in (spans, loaded(rows)):
        assert 1 == add(each, step(4, 3))
        assert [(70, ([id_of(3), id_of(2)], GivenValues(), True))] == list(
            each.call_positions_and_values_below([span(4)])
        )


@pytest.mark.parametrize("many", [0, MANY])
def test_a_call_gets_what_the_spans_around_it_give(many: int) -> None:
    """The nearest span counts. Values are stored once, also with a number that others had before."""
    spans = PendingSpans(200)
    spans.add_calls_and_select_linkable("alice", [call(5, id_of(4), 70)])
    add(spans, *[step(number, 1, given_values=ANN) for number in range(100, 100 + many)])
    spans.undo_new_spans()  # undo the new spans, as if the commit had failed
    spans.add_calls_and_select_linkable("alice", [call(5, id_of(4), 70)])
    rows = commit(spans)
    add(
        spans,
        step(3, 2, given_values=GivenValues(session="s", tags=(("agent", "inner"),))),
        step(6, 5, given_values=BOB),
    )
    add(spans, *[step(number, 99, given_values=BOB) for number in range(100, 100 + many)])
    rows += commit(spans)
    for each in (spans, loaded(rows, 200)):
        add(each, step(2, None, RUN, ANN), step(2, None, RUN, BOB))
        around = GivenValues("ann", None, "s", None, (("agent", "inner"), ("branch", "main")))
        assert [] == list(each.call_positions_and_values_below([span(2)]))
        assert 1 == add(each, step(4, 3, given_values=GivenValues(team="t")))
        assert [(70, ([id_of(2)], around._replace(team="t"), True))] == list(
            each.call_positions_and_values_below([span(4)])
        )


def test_calls_of_runs_below_get_values_but_one_states_the_runs() -> None:
    spans = PendingSpans(100)
    spans.add_calls_and_select_linkable("alice", [call(number, id_of(4), number) for number in (5, 6)])
    add(spans, step(4, 3, RUN), step(3, 2), step(2, None, RUN, ANN))
    found = dict(spans.call_positions_and_values_below([span(2)]))
    assert [ANN, ANN] == [found[place].given for place in (5, 6)]
    assert [[], [id_of(4), id_of(2)]] == sorted(list(found[place].runs) for place in (5, 6))


def test_values_of_forgotten_spans_are_forgotten() -> None:
    spans = PendingSpans(10)
    for number in range(1, 1000):
        add(
            spans,
            step(number, 9999, given_values=GivenValues(session=str(number))),
            step(number, 9998, given_values=ANN),
        )
        commit(spans)
    [sender] = spans._senders.values()
    assert 13 >= len(sender.given)
    assert 10 == len(sender._numbers)


def test_the_oldest_spans_of_the_largest_key_are_forgotten() -> None:
    spans = PendingSpans(10)
    add(spans, step(1, 99))
    commit(spans)
    for number in range(2, 11):
        add(spans, step(number, 99), sender="bob")
        commit(spans)
    assert {"alice": 1, "bob": 9} == spans.span_counts_by_key
    add(spans, step(11, 99), sender="bob")
    add(spans, step(2, 99))
    assert 2 == len(spans.rows_to_delete(NOON))
    commit(spans)
    assert {"alice": 2, "bob": 8} == spans.span_counts_by_key


def test_one_commit_never_exceeds_the_limit() -> None:
    spans = PendingSpans(10)
    add(spans, step(1, 99))
    commit(spans)
    assert 10 == add(spans, *[step(number, 99) for number in range(2, 14)])
    commit(spans)
    assert {"alice": 10} == spans.span_counts_by_key
    assert 0 == add(spans, step(2, 98))
    spans.add_calls_and_select_linkable("alice", [call(number, id_of(99), 70) for number in range(20, 40)])
    commit(spans)
    assert {"alice": 10} == spans.span_counts_by_key


def test_old_spans_are_forgotten() -> None:
    spans = PendingSpans(10)
    add(spans, step(1, 99))
    [row] = commit(spans)
    assert [] == spans.rows_to_delete(NOON + KEPT_S - 61)
    assert [row.key] == spans.rows_to_delete(NOON + KEPT_S)
    commit(spans, NOON + KEPT_S + 100)
    assert {} == spans.span_counts_by_key


def test_only_age_deletes_the_spans_of_a_clock_that_was_ahead() -> None:
    """
    Remembered spans stay until they are old by the corrected clock, also after a restart. If the clock was ahead
    for a while, such spans do not keep the spans of later commits.
    """
    spans, ahead = PendingSpans(10), NOON + 7 * KEPT_S
    rows = []
    for number, at in ((1, ahead), (2, NOON), (3, NOON + 300)):
        add(spans, step(number, 99))
        rows += commit(spans, at)
    for each in (spans, loaded(rows)):
        assert {"alice": 3} == each.span_counts_by_key
        assert [rows[1].key] == each.rows_to_delete(NOON + KEPT_S)
        assert [row.key for row in rows] == each.rows_to_delete(ahead + KEPT_S)


def test_spans_of_a_failed_commit_are_removed() -> None:
    """Both forms of a trace are tested: a few spans, and many."""
    for known in (1, MANY - 1, MANY, MANY + 1):
        spans = PendingSpans(1000)
        add(spans, *[step(number, 999) for number in range(1, known + 1)])
        commit(spans)
        for _ in range(2):
            assert 2 == add(spans, step(500, 999), step(501, 500, RUN))
            spans.undo_new_spans()
        assert {"alice": known} == spans.span_counts_by_key
        assert [] == spans.rows_of_new_spans(NOON)


def test_plain_spans_are_remembered_only_in_traces_with_ai() -> None:
    spans = PendingSpans(10)
    assert 0 == add(spans, step(3, 2, PLAIN))
    assert 2 == add(spans, step(3, 2, PLAIN), step(1, None, RUN))


def test_circles_end() -> None:
    spans = PendingSpans(10)
    spans.add_calls_and_select_linkable("alice", [call(3, id_of(2), 70)])
    add(spans, step(1, 2, RUN, ANN), step(2, 1, RUN))
    assert [(70, ([id_of(2), id_of(1)], ANN, True))] == list(spans.call_positions_and_values_below([span(1)]))


def test_damaged_rows_are_left_out() -> None:
    spans = PendingSpans(10)
    add(spans, step(1, 99, given_values=ANN))
    [row] = commit(spans)
    name, items, _ = msgpack.decode(row.body)
    bodies = [row.body[:-1], b"", msgpack.encode((name, items[:-1], [])), msgpack.encode((name, items, []))]
    assert 4 == PendingSpans(10).load_rows([PartialReport(row.key, row.at, body) for body in bodies])


@pytest.mark.parametrize("id", ["x" * 16, "1", "", "é" * 16, " " * 16])
def test_ids_of_other_forms_are_no_spans(id: str) -> None:
    spans = PendingSpans(10)
    record, _, place = call(1, id_of(2), 70)
    spans.add_calls_and_select_linkable(
        "alice", [(record, id, place), (structs.replace(record, span_id=id), id_of(2), place)]
    )
    spans.add_calls_and_select_linkable(
        "alice", [(structs.replace(record, trace_id=id * 2), id_of(2), place)]
    )
    of_run = (RUN, None)
    add(
        spans,
        (TRACE, id, None, *of_run),
        (TRACE, id_of(1), id or "1", *of_run),
        (id * 2, id_of(1), None, *of_run),
    )
    assert [] == [*spans.positions_of_linkable_calls("alice", [(TRACE, id, None, *of_run)])]
    assert {} == spans.span_counts_by_key
