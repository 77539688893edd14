"""
Forms. A form gives the result of reading a span from the span's varying values: each field of the result is a
constant, a copy of a value, or a sum of counts.

A form is derived from several spans of one kind, and is used only if it holds for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import msgspec

from gateway.normalise.memory.slots import COUNTS
from gateway.normalise.otlp.call import NO_CALLER, Caller, SpanCall
from gateway.normalise.otlp.spans.reader import ReadSpan
from gateway.normalise.otlp.spans.trace_tree import TraceNode
from gateway.normalise.reading.tokens import Tokens, set_token_counts
from spool.record import Inference

_FACTORS: Final = sorted(
    (factors for factors in product((0, 1, -1), repeat=len(COUNTS)) if any(factors)),
    key=lambda factors: sum(map(abs, factors)),
)
_RECORD: Final = tuple([name for name in Inference.__struct_fields__ if name != "tags"])
_CALL: Final = tuple(
    [
        name
        for name in SpanCall.__struct_fields__
        if name
        not in ("place", "record", "tokens", "caller", "resource_caller", "resource", "scope", "device")
    ]
)
_CALLER: Final = Caller.__struct_fields__
_NODE: Final = ("agent", "is_border", "is_run", "is_ai", "began", "stream", "ended", "below")

Path = tuple[str, Any]


class VaryingValues(NamedTuple):
    """The values of a span that may differ from other spans of its kind. Missing times are None."""

    trace_id: str | None
    span_id: str | None
    parent_id: str | None
    start: int | None
    end: int | None
    texts: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def all_values(self) -> tuple[Any, ...]:
        return (self.trace_id, self.span_id, self.parent_id, self.start, self.end, *self.texts)


def values_by_path(read_span: ReadSpan) -> dict[Path, Any] | None:
    """
    Return every field value of a read span by its path. Return None if a `SpanForm` cannot express one of
    them.
    """
    found: dict[Path, Any] = {
        ("read", name): getattr(read_span, name) for name in ("is_call", "ignored", "shown", "left_out")
    }
    call, node = read_span.call, read_span.node
    found["has", "call"], found["has", "node"] = call is not None, node is not None
    if call is not None:
        record = call.record
        if (
            call.also
            or call.links
            or call.joins
            or call.run_id
            or call.inner
            or call.reports_stream
            or record.meters
            or record.charges
        ):
            return None
        found |= {("record", name): getattr(record, name) for name in _RECORD}
        found["names", "tags"] = tuple(record.tags)
        found |= {("tag", name): value for name, value in record.tags.items()}
        found |= {("call", name): getattr(call, name) for name in _CALL}
        found |= {("token", place): value for place, value in enumerate(call.tokens)}
        if not _is_same_with_counts(record, call.tokens):
            return None
    if node is not None:
        if (
            node.call is not call
            or node.parent != read_span.parent
            or (call and node.caller is not call.caller)
        ):
            return None
        found |= {("node", name): getattr(node, name) for name in _NODE}
        if node.began is not None or node.work:
            return None
    caller = call.caller if call is not None else node.caller if node is not None else NO_CALLER
    found["has", "caller"] = caller is not NO_CALLER
    found |= {("caller", name): getattr(caller, name) for name in _CALLER}
    return found


def _is_same_with_counts(record: Inference, tokens: Tokens) -> bool:
    again = _copied_record(record)
    set_token_counts(again, tokens)
    return again == record


class SpanForm(msgspec.Struct, frozen=True):
    """
    How the span memory builds the result for one kind of span: `read` with some fields copied from values of
    the span. The index in each pair of `record`, `call`, `node`, `tags` and `caller` points into
    `VaryingValues.all_values`.
    """

    read: ReadSpan  # result for a sample span; fields that do not vary keep its values
    record: tuple[tuple[str, int], ...]
    call: tuple[tuple[str, int], ...]
    node: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]
    caller: tuple[tuple[int, int], ...]
    # For each token count: its index in Tokens, the index of the count to copy (or -1), and the factors
    # of the counts.
    tokens: tuple[tuple[int, int, tuple[int, ...]], ...]

    def build_read_span(self, varying_values: tuple[Any, ...], token_counts: Sequence[int]) -> ReadSpan:
        """
        Return the result for a span with these varying values (`VaryingValues.all_values`) and counts,
        without the
        rules.
        """
        trace_id, span_id, parent_id = varying_values[:3]
        sample = self.read
        template, sample_node = sample.call, sample.node
        key = None if trace_id is None or span_id is None else (trace_id, span_id)
        parent = None if trace_id is None or parent_id is None else (trace_id, parent_id)
        read = ReadSpan(key, parent, sample.is_call, sample.ignored, sample.shown, sample.left_out)
        caller = NO_CALLER
        if template is not None:
            caller = template.caller
        elif sample_node is not None:
            caller = sample_node.caller
        if self.caller:
            fields = [caller.user, caller.team, caller.session, caller.api_key, caller.email]
            for at, place in self.caller:
                fields[at] = varying_values[place]
            caller = Caller(*fields)
        if template is not None:
            call = read.call = _copied_call(template)
            record = call.record = _copied_record(template.record)
            for name, place in self.record:
                setattr(record, name, varying_values[place])
            tags = record.tags = dict(template.record.tags)
            for name, place in self.tags:
                tags[name] = varying_values[place]
            for name, place in self.call:
                setattr(call, name, varying_values[place])
            call.caller = caller
            if self.tokens:
                numbers: list[Any] = list(template.tokens)
                for at, stated, factors in self.tokens:
                    numbers[at] = token_counts[stated] if stated >= 0 else weighted_sum(factors, token_counts)
                tokens = call.tokens = _tokens(Tokens, numbers)
                set_token_counts(record, tokens)
        if sample_node is not None:
            node = read.node = TraceNode(parent, caller, sample_node.agent, sample_node.is_border, read.call)
            node.is_run, node.is_ai = sample_node.is_run, sample_node.is_ai
            for name, place in self.node:
                setattr(node, name, varying_values[place])
        return read


# msgspec adds `__copy__` to its classes without declaring it to type checkers. `copy.copy` takes three
# times as long.
_copied_call: Final[Callable[[SpanCall], SpanCall]] = SpanCall.__copy__  # type: ignore[attr-defined]
_copied_record: Final[Callable[[Inference], Inference]] = Inference.__copy__  # type: ignore[attr-defined]
_tokens: Final = tuple.__new__


def weighted_sum(weights: Sequence[int], counts: Sequence[int]) -> int:
    return sum([a * b for a, b in zip(weights, counts, strict=True)])


def derive_common_span_form(
    read_spans: Sequence[ReadSpan], varying_values: Sequence[VaryingValues]
) -> SpanForm | None:
    """Return the `SpanForm` that gives each of `read_spans` from the varying values of the same span, or None."""
    found = [values_by_path(read) for read in read_spans]
    known = [one for one in found if one is not None]
    if len(known) < len(found) or any(one.keys() != known[0].keys() for one in known):
        return None
    places: dict[str, list[tuple[Any, int]]] = {
        name: [] for name in ("record", "call", "node", "tag", "caller")
    }
    tokens: list[tuple[int, int, tuple[int, ...]]] = []
    counted = _paths_of_token_counts(known[0])
    columns = list(zip(*[one.all_values for one in varying_values], strict=True))
    for path in known[0]:
        column = [one[path] for one in known]
        if all(value == column[0] and type(value) is type(column[0]) for value in column):
            continue
        kind, name = path
        if kind == "token":
            factors = _find_count_weights_giving_values(column, [one.counts for one in varying_values])
            if factors is None:
                return None
            is_one = sorted(factors)[-1] == sum(map(abs, factors)) == 1
            tokens.append((name, factors.index(1) if is_one else -1, factors))
        elif path in counted:
            continue
        elif kind in places and (place := _position_of_equal_column(column, columns, name)) is not None:
            places[kind].append((_CALLER.index(name) if kind == "caller" else name, place))
        else:
            return None
    return SpanForm(
        read_spans[0],
        tuple(places["record"]),
        tuple(places["call"]),
        tuple(places["node"]),
        tuple(places["tag"]),
        tuple(places["caller"]),
        tuple(tokens),
    )


def _paths_of_token_counts(leaves: Mapping[Path, Any]) -> frozenset[Path]:
    if not leaves["has", "call"]:
        return frozenset()
    record = Inference(id=b"", source="")
    set_token_counts(record, Tokens(1, 2, 3, 4, 5, 6))
    names = [name for name in _RECORD if type(getattr(record, name)) is int]
    return frozenset([("record", name) for name in names])


def _position_of_equal_column(
    column: Sequence[Any], columns: Sequence[Sequence[Any]], name: str
) -> int | None:
    for place, values in enumerate(columns):
        if all(a == b and type(a) is type(b) for a, b in zip(column, values, strict=True)):
            return place
    return None


def _find_count_weights_giving_values(
    wanted_values: Sequence[Any], token_counts: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    if not all(type(value) is int for value in wanted_values):
        return None
    for factors in _FACTORS:
        if all(
            weighted_sum(factors, stated) == value
            for value, stated in zip(wanted_values, token_counts, strict=True)
        ):
            return factors
    return None
