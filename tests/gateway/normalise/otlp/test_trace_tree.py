"""The span trees of a payload are processed in steps, so that the event loop gets turns between them."""

from __future__ import annotations

from gateway.normalise.otlp.call import NO_CALLER, SpanCall
from gateway.normalise.otlp.spans.trace_tree import (
    TURN,
    Key,
    TraceNode,
    TraceTree,
    assign_stream_reports_to_start_spans,
)
from gateway.normalise.reading.tokens import Tokens
from spool.record import Inference

TURNS = 3


def call(place: int, *, reports_stream: bool = False) -> SpanCall:
    record = Inference(
        id=b"", source="otel", request_model="m", trace_id=f"{place:032x}", span_id=f"{place:016x}"
    )
    made = SpanCall(place, record, 0, Tokens(input=7, output=5), NO_CALLER, None, None)
    made.reports_stream = reports_stream
    return made


def key(number: int) -> Key:
    return f"{number:032x}", f"{number:016x}"


def test_twins_are_settled_in_turns() -> None:
    """
    While duplicate spans of a call are dropped, the event loop gets turns in proportion to the number of spans.
    """
    tree = TraceTree()
    for number in range(TURNS * TURN):
        outer, inner = key(2 * number), key(2 * number + 1)
        tree.nodes[outer] = TraceNode(None, NO_CALLER, None, False, call(2 * number))
        tree.nodes[inner] = TraceNode(outer, NO_CALLER, None, False, call(2 * number + 1))
    assert 3 * TURNS == sum(1 for _ in tree.merge_duplicates_and_return_dropped())


def test_streams_are_joined_in_turns() -> None:
    """
    Each report of a stream replaces one call. This work is done in steps, and no pass is longer than a step.
    """
    nodes: dict[Key, TraceNode] = {}
    calls: list[tuple[SpanCall, Key | None]] = []
    for number in range(TURNS * TURN):
        begins, own, report = (key(3 * number + place) for place in range(3))
        nodes[begins] = TraceNode(None, NO_CALLER, None, False, None, 1)
        for at, parent, reports in ((own, begins, False), (report, None, True)):
            made = call(int(at[1], 16), reports_stream=reports)
            nodes[at] = TraceNode(parent, NO_CALLER, None, False, made)
            calls.append((made, parent))
    # The steps are over nodes, calls (twice), reports by position, and repeated calls.
    assert (3 + 2 + 2 + 1 + 1) * TURNS == sum(1 for _ in assign_stream_reports_to_start_spans(nodes, calls))
    assert TURNS * TURN == len({node.stream.place for node in nodes.values() if node.stream is not None})
