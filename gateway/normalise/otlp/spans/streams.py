"""
Streams that are reported beside the span that begins them: what stands below that span repeats the report.

Only which report belongs to which span is found here; the trees then take the report for what encloses the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.spans.trace_tree import TURN, Key, Node

_Place = tuple[str | None, Key | None]  # trace id and parent
_Counts = tuple[str | None, int | None, int | None]  # model, input and output


def join(nodes: Mapping[Key, Node], calls: Sequence[tuple[SpanCall, Key | None]]) -> Iterator[None]:
    """
    Give each span that begins a stream the report of it.

    Under one parent they belong together in the order in which they begin; where one is missing, none is
    joined. Without a parent each is a trace of its own: there the counts say which belong together.
    """
    begun: dict[_Place, list[Node]] = {}
    for number, ((trace_id, _), node) in enumerate(nodes.items(), start=1):
        if number % TURN == 0:
            yield
        if node.began is not None:
            begun.setdefault((trace_id, node.parent), []).append(node)
    if not begun:
        return
    reported: dict[_Place, list[SpanCall]] = {}
    for number, (call, parent) in enumerate(calls, start=1):
        if number % TURN == 0:
            yield
        if call.reports_stream:
            reported.setdefault((call.record.trace_id, parent), []).append(call)
    joined: set[int] = set()
    for number, (place, reports) in enumerate(reported.items(), start=1):
        if number % TURN == 0:
            yield
        beginnings = begun.get(place, ())
        if len(beginnings) == len(reports):
            reports.sort(key=lambda call: call.record.start_time or 0)
            for node, call in zip(sorted(beginnings, key=lambda node: node.began or 0), reports, strict=True):
                node.stream = call
                joined.add(call.place)
    yield from _join_traces(nodes, calls, joined)


def _join_traces(
    nodes: Mapping[Key, Node], calls: Sequence[tuple[SpanCall, Key | None]], joined: set[int]
) -> Iterator[None]:
    """Each report of a stream that is a trace of its own repeats one call alone, below a span that begins one."""
    repeated: dict[Key, SpanCall] = {}
    loose: dict[_Counts, list[SpanCall]] = {}
    for number, (call, parent) in enumerate(calls, start=1):
        if number % TURN == 0:
            yield
        if not call.has_usage:
            continue
        if parent is None:
            if call.reports_stream and call.place not in joined:
                loose.setdefault(_counts(call), []).append(call)
        elif (node := nodes.get(parent)) is not None and _is_loose(node):
            repeated[parent] = call
    for number, (key, call) in enumerate(repeated.items(), start=1):
        if number % TURN == 0:
            yield
        if reports := loose.get(_counts(call)):
            nodes[key].stream = reports.pop()


def _is_loose(node: Node) -> bool:
    return node.began is not None and node.parent is None and node.stream is None


def _counts(call: SpanCall) -> _Counts:
    return call.record.request_model, call.tokens.input, call.tokens.output
