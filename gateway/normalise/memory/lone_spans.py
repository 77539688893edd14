"""
Calls whose spans have no related spans in their request. The memory adds such a call to the outcome in one
step.

The result must equal that of `SpanReader`, so a form is used only if both give the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gateway.normalise.memory.contexts import EncodedResource, SpanContext
from gateway.normalise.memory.forms import SpanForm, VaryingValues, weighted_sum
from gateway.normalise.otlp.call import NO_CALLER, Caller, SpanCall, fill_caller, merge_callers
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.senders import version_of_sender
from gateway.normalise.otlp.spans.reader import ReadSpan, SpanReader, read_span_if_independent
from gateway.normalise.outcome import ReadOptions, ReadOutcome, Stated, source_and_stated_fields
from gateway.normalise.payload.body_limits import TimeSliceClock
from gateway.normalise.reading.tokens import set_token_counts
from spool.identity import (
    AS_ASSISTANT,
    RecordIdentity,
    call_identity,
    links_to_server_and_caller,
    with_dedup_keys_and_links,
    with_dedup_keys_of_trace,
    with_span_above,
)
from spool.log.pending_spans import PLAIN, RUN, STEP
from spool.people import USER_EMAIL
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
# plain values of an Identity's fields between `id` and `above`
_PLAIN: Final = (), True, (), (), (), False, False, None, None
COUNTS_PLACE: Final = 2  # index of the token counts in a row of the compiled module
ID_PLACE: Final = 3  # index of the hash of the response id in a row, if the id is long
SPAN_PLACE: Final = 5  # index of the id of the span in a row
PARENT_PLACE: Final = 6  # index of the id of the parent span in a row
FIRST_PLACE: Final = 4  # index of the first of `VaryingValues.all_values` in a row
_AT_ONCE: Final = 64  # number of spans that are counted between two checks of the clock


class UnrelatedSpanTemplate(msgspec.Struct, frozen=True, eq=False):
    """
    A template for the result of a span without related spans. `record` is None if the span is not a call.
    Then `ignored` is the reason, and `shown` the names for the list of unrecognized items.

    A row has the values of one span that the compiled module found. The fields named `..._place` are indexes
    into a row, or 0 if the value does not vary. The tuples `fields`, `tags` and `counts` also have such
    indexes.
    """

    record: Inference | None
    fields: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]
    counts: tuple[tuple[str, int, tuple[int, ...]], ...]
    response_id: str | None
    response_place: int
    shared_id: str | None
    shared_place: int
    own_id: str | None
    scope: str
    device: str | None
    ignored: str | None
    shown: tuple[str, ...] | None
    left_out: int
    # the record again if the response id alone identifies the call, provided that the id is long
    plain: Inference | None = None
    has_run: bool = False  # True if the span of the call states the run of an agent
    step: int = PLAIN  # kind of a span that is not a call, for `SpanStep`
    stated: Stated = ()  # for each call of this kind: which fields it states, without the sender version

    def add_to_outcome(self, outcome: ReadOutcome, row: Sequence[Any], sender_version: str) -> None:
        """
        Add the result of one span to the outcome, with its row's values. The caller has already entered the
        span's resource.
        """
        outcome.left_out += self.left_out
        if self.record is None:
            if self.ignored is not None:
                outcome.ignored[self.ignored] += 1
            if self.shown is not None:
                outcome.unrecognised.append(self.shown)
            trace, span, parent = row[FIRST_PLACE : PARENT_PLACE + 1]
            if trace is not None and span is not None:
                outcome.steps.append((trace, span, parent, self.step, None))
            return
        record = self.build_record_from_template(self.record, row)
        place = self.response_place
        response_id = row[place] if place else self.response_id
        place, own = self.shared_place, self.own_id
        shared_id = row[place] if place else self.shared_id
        identity = call_identity(
            record, response_id=response_id, shared_id=shared_id, span=own is None, own_id=own
        )
        parent, chosen = row[PARENT_PLACE], response_id or shared_id
        if identity.scope is not None and chosen is not None:
            trace = row[FIRST_PLACE]
            above = None if parent is None else (trace, parent)
            links = links_to_server_and_caller(
                record, (trace, row[SPAN_PLACE]), above, states_request_id=False, has_provider_counts=False
            )
            identity = with_dedup_keys_and_links(
                with_dedup_keys_of_trace(identity, record, chosen, self.scope), (), links, ()
            )
        if not self.has_run and parent is not None:
            identity = with_span_above(identity, parent)
        outcome.add_record(record, identity, device=self.device, version=sender_version)

    def build_record_from_template(self, template: Inference, row: Sequence[Any]) -> Inference:
        record = _copied(template)
        for name, place in self.fields:
            setattr(record, name, row[place])
        if self.tags:
            tags = record.tags = dict(template.tags)
            for name, place in self.tags:
                tags[name] = row[place]
        counts = row[COUNTS_PLACE]
        for name, stated, factors in self.counts:
            setattr(record, name, counts[stated] if stated >= 0 else weighted_sum(factors, counts))
        return record


def add_results_of_rows_to_outcome(
    learned_kinds: Sequence[LearnedKind | None],
    rows: Sequence[Sequence[Any]],
    outcome: ReadOutcome,
    sender_version: str,
) -> None:
    """
    Add the results of spans to the outcome, faster than `UnrelatedSpanTemplate.add_to_outcome` for each span
    and with the same result: the rows already have the hashes of the response ids.
    """
    records, identities, counted = outcome.records, outcome.identities, list[UnrelatedSpanTemplate]()
    for kind, row in zip(learned_kinds, rows, strict=True):
        assert kind is not None and kind.alone is not None
        alone, record_id = kind.alone, row[ID_PLACE]
        plain = alone.plain
        if plain is None or record_id is None:
            alone.add_to_outcome(outcome, row, sender_version)
            continue
        outcome.left_out += alone.left_out
        record = alone.build_record_from_template(plain, row)
        record.id = record_id
        records.append(record)
        counted.append(alone)
        above = None if alone.has_run else row[PARENT_PLACE]
        identities.append(_identity(RecordIdentity, (record_id, *_PLAIN, above, None)))
    for alone, calls in Counter(counted).items():
        source, _, *others = alone.stated
        stated = (source, sender_version, *others)
        outcome.stated[stated] = outcome.stated.get(stated, 0) + calls


class LearnedKind(NamedTuple):
    """
    What the span memory has learned about one kind of span: its form and, if it can be used for spans without
    related spans, a template of their result.
    """

    form: SpanForm
    alone: UnrelatedSpanTemplate | None


class LookedUpSpans(NamedTuple):
    """
    Consecutive spans with one context, and the row and the kind that the compiled module found for each.

    The span is encoded if its kind is known. If not, it is decoded, its kind is None, and its row has only
    ids.
    """

    context: SpanContext
    spans: list[Any]
    rows: list[tuple[Any, ...]]
    kinds: list[LearnedKind | None]


def row_of_unknown_span(span: Span) -> tuple[Any, ...]:
    """
    Return the row for a span that the compiled module did not find. It has only the ids, which
    `has_only_distinct_unrelated_spans` reads.
    """
    return None, False, (), None, span.trace_id, span.span_id, span.parent_id


def has_only_distinct_unrelated_spans(rows: Sequence[Sequence[Any]]) -> bool:
    """
    Return whether no span appears twice, and if no span is the parent of another of these spans. `rows` come
    from the compiled module.
    """
    if len(rows) == 1:
        return rows[0][5] not in (None, rows[0][6])
    ids = {row[5] for row in rows}
    return len(ids) == len(rows) and None not in ids and ids.isdisjoint([row[6] for row in rows])


def check_unrelated_and_read_unknown_spans(
    looked_up_spans: Sequence[LookedUpSpans], options: ReadOptions
) -> bool:
    """
    Return whether no result depends on another of these spans. Then also replace each span of an unknown kind
    in `looked_up_spans` by the result of reading it with the rules.
    """
    if any(kind is not None and kind.alone is None for part in looked_up_spans for kind in part.kinds):
        return False
    if not has_only_distinct_unrelated_spans([row for part in looked_up_spans for row in part.rows]):
        return False
    unknown = [
        (part.spans, place)
        for part in looked_up_spans
        for place, kind in enumerate(part.kinds)
        if kind is None
    ]
    reads = [read_span_if_independent(spans[place], options) for spans, place in unknown]
    if not all(read is not None and _is_independent_of_other_spans(read) for read in reads):
        return False
    for (spans, place), read in zip(unknown, reads, strict=True):
        spans[place] = read
    return True


def _is_independent_of_other_spans(read_span: ReadSpan) -> bool:
    call, node = read_span.call, read_span.node
    if node is not None and node.began is not None:
        return False
    return call is None or not (
        _has_facts_beyond_record(call)
        or call.also
        or call.links
        or call.joins
        or call.run_id
        or call.inner
        or call.reports_stream
    )


def _has_facts_beyond_record(call: SpanCall) -> bool:
    is_relayed = call.relay_side == AS_ASSISTANT or call.relayed_session is not None
    return (
        is_relayed
        or call.is_linked
        or call.is_logged
        or call.is_guess
        or call.is_of_sdk
        or call.agent is not None
    )


def add_unrelated_spans_to_outcome(
    looked_up_spans: Sequence[LookedUpSpans],
    outcome: ReadOutcome,
    options: ReadOptions,
    clock: TimeSliceClock,
) -> Iterator[None]:
    entered: EncodedResource | None = None
    for part in looked_up_spans:
        if part.context.of is not entered:
            outcome.left_out += part.context.left_out
            entered = part.context.of
        version = part.context.version
        for first in range(0, len(part.kinds), _AT_ONCE):
            begin, end = first, min(first + _AT_ONCE, len(part.kinds))
            for place in [place for place in range(begin, end) if part.kinds[place] is None]:
                add_results_of_rows_to_outcome(
                    part.kinds[begin:place], part.rows[begin:place], outcome, version
                )
                _add_read_span(part, place, outcome, options)
                begin = place + 1
            add_results_of_rows_to_outcome(part.kinds[begin:end], part.rows[begin:end], outcome, version)
            if clock.is_over():
                outcome.pack_finished_part_if_full()
                yield
                clock.begin_slice()
    outcome.pack_finished_part_if_full()


def _add_read_span(
    looked_up_spans: LookedUpSpans, item_index: int, outcome: ReadOutcome, options: ReadOptions
) -> None:
    left_out = outcome.left_out
    reader = SpanReader(outcome, options)
    reader.set_current_resource_and_scope(looked_up_spans.context.resource, looked_up_spans.context.scope)
    # values that the resource leaves out are counted once, and not for each of its spans
    outcome.left_out = left_out
    reader.add_read_span(item_index, looked_up_spans.spans[item_index])
    for _ in reader.add_items_that_waited():
        pass


def build_unrelated_span_template(
    form: SpanForm, spans: Sequence[Span], varying_values: Sequence[VaryingValues], options: ReadOptions
) -> UnrelatedSpanTemplate | None:
    """
    Return a template of the result for spans of this form without related spans in their request. Return None
    if the rules give another result.
    """
    call = form.read.call
    found = (
        _unrelated_span_template_without_call(form)
        if call is None
        else _unrelated_span_template_with_call(form, call, spans[0].scope.name)
    )
    if found is None:
        return None
    kind = LearnedKind(form, found)
    holds = all(
        has_same_outcome_as_rules(kind, span, slots, options)
        for span, slots in zip(spans, varying_values, strict=True)
    )
    return found if holds else None


def _unrelated_span_template_without_call(form: SpanForm) -> UnrelatedSpanTemplate | None:
    read, node = form.read, form.read.node
    if node is not None and (node.caller is not NO_CALLER or node.agent is not None):
        # a span that states a caller or an agent may change calls of other requests, so the rules must read it
        return None
    step = PLAIN if node is None else RUN if node.is_run else STEP if node.is_ai else PLAIN
    return UnrelatedSpanTemplate(
        None, (), (), (), None, 0, None, 0, None, "", None, read.ignored, read.shown, read.left_out, step=step
    )


def _unrelated_span_template_with_call(
    form: SpanForm, call: SpanCall, scope: str
) -> UnrelatedSpanTemplate | None:
    own = dict(form.call)
    if (
        _has_facts_beyond_record(call)
        or not own.keys() <= {"response_id", "shared_id"}
        or call.resource_caller.session is not None
    ):
        return None
    record, fields = _copied(call.record), dict(form.record)
    record.tags = dict(call.record.tags)
    caller = merge_callers(call.caller, call.resource_caller)
    slots = {_CALLER[at]: place for at, place in form.caller}
    tags = dict(form.tags)
    if caller is not NO_CALLER or slots:
        for name in _CALLER:
            fields.pop(name, None)
        if not fill_caller(record, caller):
            return None
        if "email" in slots:
            tags[USER_EMAIL] = slots.pop("email")
        fields |= slots
    set_token_counts(record, call.tokens)
    if any(at >= len(_COUNTS) for at, _, _ in form.tokens):
        return None
    counts = tuple([(_COUNTS[at], stated, factors) for at, stated, factors in form.tokens])
    return UnrelatedSpanTemplate(
        record,
        tuple([(name, FIRST_PLACE + place) for name, place in fields.items()]),
        tuple([(name, FIRST_PLACE + place) for name, place in tags.items()]),
        counts,
        call.response_id,
        FIRST_PLACE + own["response_id"] if "response_id" in own else 0,
        call.shared_id,
        FIRST_PLACE + own["shared_id"] if "shared_id" in own else 0,
        call.own_id,
        scope,
        call.device,
        None,
        None,
        form.read.left_out,
        record if "response_id" in own and record.status != "cached" and call.device is None else None,
        has_run=record.run is not None or "run" in fields,
        stated=source_and_stated_fields(record, ""),
    )


def has_same_outcome_as_rules(
    learned_kind: LearnedKind,
    span: Span,
    varying_values: VaryingValues,
    options: ReadOptions,
    response_id_hash: bytes | None = None,
) -> bool:
    """
    Return whether the learned kind of span and `SpanReader` give the same outcome for a span.
    `response_id_hash`: the hash of its response id in its row of the compiled module.
    """
    resource, scope = span.resource, span.scope
    by_rules, found = ReadOutcome(keep_tags=options.keep_tags), ReadOutcome(keep_tags=options.keep_tags)
    reader = SpanReader(by_rules, options)
    reader.set_current_resource_and_scope(resource, scope)
    reader.add_read_span(
        0, learned_kind.form.build_read_span(varying_values.all_values, varying_values.counts)
    )
    for _ in reader.add_items_that_waited():
        pass
    SpanReader(found, options).set_current_resource_and_scope(resource, scope)
    row = (0, False, varying_values.counts, response_id_hash, *varying_values.all_values)
    add_results_of_rows_to_outcome((learned_kind,), (row,), found, version_of_sender(resource, scope))
    return by_rules == found
