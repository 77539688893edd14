"""
Calls without related spans in their request. Such a call is read and added to the outcome in one step.

The result must equal that of `SpanReader`. A form is used only if both give the same result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec

from gateway.normalise.memory.contexts import Context, EncodedResource
from gateway.normalise.memory.forms import SpanForm, Varying, sum_of
from gateway.normalise.otlp.call import NO_CALLER, Caller, SpanCall, nearest
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.spans.reader import ReadSpan, SpanReader, read_alone
from gateway.normalise.outcome import Options, Outcome
from gateway.normalise.payload.body_limits import SliceClock
from gateway.normalise.reading.tokens import set_counts
from spool.identity import Identity, is_long, of_call, of_response, of_responses
from spool.record import Inference

_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cache_write_1h_tokens",
)
_CALLER: Final = Caller.__struct_fields__
_copied: Final[Callable[[Inference], Inference]] = Inference.__copy__  # type: ignore[attr-defined]
_identity: Final = tuple.__new__
_PLAIN: Final = (), True, (), (), (), False  # values of the fields that follow the id in an Identity
_FIRST: Final = 3  # index of the first of `Varying.values` in a row of the compiled module
_FEW: Final = 12  # with fewer calls, it is faster to book them one by one
_MOST_TOGETHER: Final = 128


class CallAlone(msgspec.Struct, frozen=True):
    """
    The record of a call, or the result of a span that is not a call (`record` is None).

    The fields named `..._place` are indexes into `Varying.values`.
    """

    record: Inference | None
    fields: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]
    counts: tuple[tuple[str, int, tuple[int, ...]], ...]
    response_id: str | None
    response_place: int  # -1 if the response id does not vary
    shared_id: str | None
    shared_place: int
    own_id: str | None
    device: str | None
    ignored: str | None
    shown: tuple[str, ...] | None
    left_out: int

    def book(self, outcome: Outcome, varying: Sequence[Any], counts: Sequence[int]) -> None:
        """
        Add the result of one span to the outcome. The resource of the span must have been entered before.
        """
        outcome.left_out += self.left_out
        template = self.record
        if template is None:
            if self.ignored is not None:
                outcome.ignored[self.ignored] += 1
            if self.shown is not None:
                outcome.unrecognised.append(self.shown)
            return
        record = _copied(template)
        for name, place in self.fields:
            setattr(record, name, varying[place])
        tags = record.tags = dict(template.tags)
        for name, place in self.tags:
            tags[name] = varying[place]
        for name, stated, factors in self.counts:
            setattr(record, name, counts[stated] if stated >= 0 else sum_of(factors, counts))
        place = self.response_place
        response_id = varying[place] if place >= 0 else self.response_id
        if response_id and record.status != "cached" and is_long(response_id):
            identity: Identity = _identity(Identity, (of_response(response_id), *_PLAIN))
        else:
            place, own = self.shared_place, self.own_id
            shared_id = varying[place] if place >= 0 else self.shared_id
            identity = of_call(
                record, response_id=response_id, shared_id=shared_id, span=own is None, own_id=own
            )
        outcome.add(record, identity, device=self.device)

    def book_all(self, outcome: Outcome, rows: Sequence[Sequence[Any]]) -> None:
        """
        Book spans from the rows that the compiled module returned. The result is the same as calling `book`
        for each span.
        """
        if len(rows) < _FEW or not self.booked_together(outcome, rows):
            for row in rows:
                self.book(outcome, row[_FIRST:], row[2])

    def booked_together(self, outcome: Outcome, rows: Sequence[Sequence[Any]]) -> bool:
        """
        Book many calls field by field. If one of the calls is not identified by a long response id, book none
        of them and return False.
        """
        template = self.record
        if template is None or template.status == "cached" or self.response_place < 0:
            return False
        columns = list(zip(*rows, strict=True))
        ids: Sequence[str] = columns[_FIRST + self.response_place]
        if self.device is not None or not all(map(is_long, ids)):
            return False
        outcome.left_out += self.left_out * len(rows)
        records = [_copied(template) for _ in rows]
        for name, place in self.fields:
            _fill(records, name, columns[_FIRST + place])
        for name, stated, factors in self.counts:
            if stated >= 0:
                _fill(records, name, [counts[stated] for counts in columns[2]])
            else:
                _fill(records, name, [sum_of(factors, counts) for counts in columns[2]])
        _fill(records, "tags", self._tags(template, columns))
        names = of_responses(ids)
        _fill(records, "id", names)
        outcome.records.extend(records)
        outcome.identities.extend([_identity(Identity, (name, *_PLAIN)) for name in names])
        return True

    def _tags(self, template: Inference, columns: Sequence[Sequence[Any]]) -> Iterable[Mapping[str, str]]:
        """
        Return the tags of each call. If all calls have the same tags, they share one dict, because records
        never change their tags in place.
        """
        tags = dict(template.tags)
        varying = []
        for name, place in self.tags:
            column = columns[_FIRST + place]
            tags[name] = column[0]
            if column.count(column[0]) < len(column):
                varying.append((name, column))
        if not varying:
            return repeat(tags, len(columns[0]))
        each = [tags.copy() for _ in columns[0]]
        for name, column in varying:
            for own, value in zip(each, column, strict=True):
                own[name] = value
        return each


def _fill(records: Sequence[Inference], field: str, values: Iterable[Any]) -> None:
    """Set a field of each record to its own value without running Python code for each record."""
    deque(map(setattr, records, repeat(field), values), maxlen=0)


class LearnedKind(NamedTuple):
    """
    The learned result of one kind of span: its form. If the record of a span without related spans is known,
    the result also has that record.
    """

    form: SpanForm
    alone: CallAlone | None


class LookedUp(NamedTuple):
    """
    Consecutive spans of one context, with the rows and the kinds that the compiled module found.

    Each span is encoded, or decoded if the rules must read it. The kind of a span that the rules must
    read is None, and its row ends after its ids.
    """

    context: Context
    spans: list[Any]
    rows: list[tuple[Any, ...]]
    kinds: list[LearnedKind | None]


def row_of(span: Span) -> tuple[Any, ...]:
    """Return the part of a row that `are_apart` reads, for a span that the module did not find."""
    return None, False, (), span.trace_id, span.span_id, span.parent_id


def are_apart(rows: Sequence[Sequence[Any]]) -> bool:
    """
    Return True if no span appears twice and no span is below another of these spans. `rows` come from
    the compiled module.
    """
    if len(rows) == 1:
        return rows[0][4] not in (None, rows[0][5])
    ids = {row[4] for row in rows}
    return len(ids) == len(rows) and None not in ids and ids.isdisjoint([row[5] for row in rows])


def are_alone(found: Sequence[LookedUp], options: Options) -> bool:
    """
    Return True if each span can be booked independently. The span of an unknown kind is then replaced by the
    result of reading it.
    """
    for part in found:
        before: LearnedKind | None = None
        for kind in part.kinds:
            if kind is not before and kind is not None:
                if kind.alone is None:
                    return False
                before = kind
    if not are_apart([row for part in found for row in part.rows]):
        return False
    unknown = [(part.spans, place) for part in found for place, kind in enumerate(part.kinds) if kind is None]
    reads = [read_alone(spans[place], options) for spans, place in unknown]
    if not all(read is not None and _is_independent(read) for read in reads):
        return False
    for (spans, place), read in zip(unknown, reads, strict=True):
        spans[place] = read
    return True


def _is_independent(read: ReadSpan) -> bool:
    """Return True if neither other spans nor other reports can change the result of reading a span."""
    call, node = read.call, read.node
    if node is not None and node.began is not None:
        return False
    return call is None or not (
        _has_more(call) or call.also or call.joins or call.run_id or call.inner or call.reports_stream
    )


def _has_more(call: SpanCall) -> bool:
    return call.is_linked or call.is_logged or call.is_guess or call.is_of_sdk or call.agent is not None


def book(found: Sequence[LookedUp], outcome: Outcome, options: Options, clock: SliceClock) -> Iterator[None]:
    """Book spans that can all be booked independently."""
    entered: EncodedResource | None = None
    for part in found:
        if part.context.of is not entered:
            outcome.left_out += part.context.left_out
            entered = part.context.of
        begin = 0
        while begin < len(part.kinds):
            kind = part.kinds[begin]
            end = _end_of_run(part.kinds, begin)
            if kind is not None and kind.alone is not None:
                kind.alone.book_all(outcome, part.rows[begin:end])
            else:
                _book_read(part, begin, end, outcome, options)
            begin = end
            if clock.is_over():
                outcome.pack()
                yield
                clock.begin()
    outcome.pack()


def _book_read(part: LookedUp, begin: int, end: int, outcome: Outcome, options: Options) -> None:
    """Book spans that the rules have read."""
    left_out = outcome.left_out
    reader = SpanReader(outcome, options)
    reader.enter(part.context.resource, part.context.scope)
    outcome.left_out = left_out  # what the resource leaves out is counted once for all its spans
    for place in range(begin, end):
        reader.take_read(place, part.spans[place])
    for _ in reader.finish():
        pass


def _end_of_run(kinds: Sequence[LearnedKind | None], begin: int) -> int:
    """Return the end of the run of spans of the same kind. A run has at most `_MOST_TOGETHER` spans."""
    kind = kinds[begin]
    for place in range(begin + 1, min(begin + _MOST_TOGETHER, len(kinds))):
        if kinds[place] is not kind:
            return place
    return min(begin + _MOST_TOGETHER, len(kinds))


def alone_of(
    form: SpanForm, spans: Sequence[Span], varying: Sequence[Varying], options: Options
) -> CallAlone | None:
    """
    Return how a form books a span without related spans, or None if the span cannot be booked in this way.
    `spans` are the spans from which the form was learned, and `varying` their varying values.
    """
    call = form.read.call
    found = _nothing(form) if call is None else _call(form, call)
    if found is None:
        return None
    holds = all(
        is_booked_as(found, form, span, slots, options) for span, slots in zip(spans, varying, strict=True)
    )
    rows = [(0, False, one.counts, *one.values) for one in varying]
    return found if holds and is_same_together(found, rows) else None


def is_same_together(alone: CallAlone, rows: Sequence[Sequence[Any]]) -> bool:
    """Return True if booking many spans together gives the same result as booking each span."""
    each, together = Outcome(), Outcome()
    if not alone.booked_together(together, rows):
        return True
    for row in rows:
        alone.book(each, row[_FIRST:], row[2])
    return each == together


def _nothing(form: SpanForm) -> CallAlone:
    read = form.read
    return CallAlone(
        None, (), (), (), None, -1, None, -1, None, None, read.ignored, read.shown, read.left_out
    )


def _call(form: SpanForm, call: SpanCall) -> CallAlone | None:
    own = dict(form.call)
    if (
        _has_more(call)
        or not own.keys() <= {"response_id", "shared_id"}
        or call.resource_caller.session is not None
    ):
        return None
    record, fields = _copied(call.record), dict(form.record)
    record.tags = dict(call.record.tags)
    caller = nearest(call.caller, call.resource_caller)
    slots = {_CALLER[at]: place for at, place in form.caller}
    if caller is not NO_CALLER or slots:
        for name in _CALLER:
            fields.pop(name, None)
            setattr(record, name, getattr(caller, name))
        fields |= slots
    set_counts(record, call.tokens)
    if any(at >= len(_COUNTS) for at, _, _ in form.tokens):
        return None
    counts = tuple([(_COUNTS[at], stated, factors) for at, stated, factors in form.tokens])
    return CallAlone(
        record,
        tuple(fields.items()),
        form.tags,
        counts,
        call.response_id,
        own.get("response_id", -1),
        call.shared_id,
        own.get("shared_id", -1),
        call.own_id,
        call.device,
        None,
        None,
        form.read.left_out,
    )


def is_booked_as(alone: CallAlone, form: SpanForm, span: Span, slots: Varying, options: Options) -> bool:
    """Return True if the span reader would book the same record."""
    resource, scope = span.resource, span.scope
    by_rules, found = Outcome(keep_tags=options.keep_tags), Outcome(keep_tags=options.keep_tags)
    reader = SpanReader(by_rules, options)
    reader.enter(resource, scope)
    reader.take_read(0, form.read_span(slots.values, slots.counts))
    for _ in reader.finish():
        pass
    SpanReader(found, options).enter(resource, scope)
    alone.book(found, slots.values, slots.counts)
    return by_rules == found
