"""
The memory of spans: it gives the result for a span of a learned kind without the rules. The compiled module
finds a span's kind.

All other spans are read by the rules. The rules remain the only definition of how a span is read.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections import Counter
from collections.abc import Generator, Iterator, Sequence, Set
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from gateway.normalise.memory import slots
from gateway.normalise.memory.contexts import EncodedResource, SpanContext, SpanContexts
from gateway.normalise.memory.learning import (
    ReadOtherwise,
    differing_fields,
    learn_span_kind,
    names_read_only_for_tags,
)
from gateway.normalise.memory.lone_spans import (
    FIRST_PLACE,
    LearnedKind,
    LookedUpSpans,
    add_unrelated_spans_to_outcome,
    check_unrelated_and_read_unknown_spans,
    row_of_unknown_span,
)
from gateway.normalise.memory.pace import (
    MemoryPace,
    SpanLookupPacer,
    SpanSample,
    TriedSender,
    WaitingSamples,
    remove_content_from_span,
    span_attribute_names,
)
from gateway.normalise.otlp.admission import REDUCED, RULES
from gateway.normalise.otlp.decoding import protobuf_decoder
from gateway.normalise.otlp.decoding.pieces import Malformed
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.spans.reader import SpanReader
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.payload.body_limits import ITEM_BYTES, SLICE_BYTES, TimeSliceClock
from spool.packed.native import KnownItemKinds, NativeModule

LARGEST: Final = 2 * 1024 * 1024  # maximum bytes of a body whose spans are looked up
MOST_ITEMS: Final = 4096  # maximum spans of a body that are looked up
MOST_KINDS: Final = 4096
MOST_SHAPES: Final = 4096
MOST_NAMES: Final = 16_384
MOST_BYTES: Final = 8 * 1024 * 1024  # bytes of all keys, names and texts in the memory
ONE_IN: Final = 1000  # one in this number of known spans is compared with the rules
MOST_DIFFERENCES: Final = 20  # maximum differences between memory and rules that are kept for display
MOST_SEEN: Final = 128  # maximum spans of a request that are counted while few spans are known
_LONGEST_DIFFERENCES: Final = 300
# maximum rounds of varying a sample; they end earlier if no variation reads further attributes
_ROUNDS: Final = 24
_TURN: Final = 16
_LOOKED_FOR: Final = 64  # number of spans that are looked up together
NEVER: Final = 2**32 - 1

_log = logging.getLogger(__name__)

REASONS: Final = ("layout", "new", "unlearnable", "not_plain", "content", "events")
_NEW: Final = REASONS.index("new")
_UNREADABLE: Final = (DecodeError, UnicodeDecodeError, Malformed)


class SelectedBody(NamedTuple):
    """
    A request body to look up in the span memory. `spans` is the number of its spans, and `times` the number
    of similar requests that it represents, because the others were not looked up.
    """

    body: bytes
    sender: TriedSender
    spans: int
    times: int


class SpanMemory:
    def __init__(self, native: NativeModule, pace: MemoryPace | None = None) -> None:
        self._native = native
        self._memory: KnownItemKinds = native.item_memory(
            plan=slots.settings_of_compiled_module(), has_figures=slots.has_readable_figures
        )
        self._pace = pace or MemoryPace()
        self._options = ReadOptions()
        self._chance = random.Random(secrets.randbits(64))
        self._hits = self._draw_hit_count_until_comparison()
        self._kinds: dict[int, LearnedKind] = {}
        # A number of a kind is never used again: when all kinds are forgotten, a body that is half read may still
        # have numbers of earlier ones.
        self._last_kind = 0
        self._contexts = SpanContexts(self._memory, self.forget_learned_span_kinds)
        self._reads: dict[tuple[int | str, ...], set[str]] = {}
        self._names: set[str] = set()
        self._tags: set[str] = set()  # names of attributes whose texts become only tags
        self._trials = SpanLookupPacer(self._pace)
        self._samples = WaitingSamples(self._pace)
        self.spans: Counter[str] = Counter()  # number of spans by reader: rules or memory
        self.misses: Counter[str] = Counter()
        self.compared: Counter[str] = Counter()
        # the first spans since the start that the memory read differently from the rules
        self.different: list[ReadOtherwise] = []

    @property
    def span_kind_count(self) -> int:
        return self._memory.size()[0]

    @property
    def size_bytes(self) -> int:
        return self._memory.size()[1]

    def forget_learned_span_kinds(self) -> None:
        self._memory.clear()
        self._contexts.forget_contexts()
        self._kinds = {}
        self._reads = {}
        self._names = set()
        self._tags = set()
        self._trials = SpanLookupPacer(self._pace)
        self._samples.clear()
        self._memory.ask(slots.encode_texts(self._options.keep_attributes))

    def normalise_if_known(
        self, body: bytes, options: ReadOptions
    ) -> Generator[None, None, ReadOutcome | None]:
        """Read a traces request with the span memory. Return None if the rules must read it."""
        selected = self.select_body_for_span_lookup(body, options)
        return None if selected is None else (yield from self.read_body_unless_many_spans_unknown(selected))

    def select_body_for_span_lookup(self, body: bytes, options: ReadOptions) -> SelectedBody | None:
        """
        Select a request body to look up in the span memory, at little cost. Return None if the rules must
        read it.
        """
        if (
            self._trials.skip_request_if_lookups_paused()
            or len(body) > LARGEST
            or options.explain
            or not self._native.is_on
        ):
            return None
        if options is not self._options and options != self._options:
            self._options = options
            self.forget_learned_span_kinds()
        try:
            shape = self._memory.scopes(body, min(MOST_ITEMS, options.max_items))
        except self._native.panic as error:
            self._native.count_fault(error)
            return None
        if shape is None:
            self.misses["layout"] += 1
            self._trials.note_request_read_by_rules()
            return None
        scopes, count = shape
        items = 2 * len(scopes) + count
        if items > options.max_items or items * ITEM_BYTES - len(body) >= SLICE_BYTES:
            return None
        rested = self._trials.take_represented_request_count()
        came = count * rested
        self._samples.add_spans_to_learning_budget(came)
        sender = self._trials.find_or_add_sender(scopes)
        times = self._trials.decide_lookup_and_represented_requests(sender, came, rested)
        self.spans["rules"] += came - count if times else came
        return SelectedBody(body, sender, count, times) if times else None

    def read_body_unless_many_spans_unknown(
        self, selected: SelectedBody
    ) -> Generator[None, None, ReadOutcome | None]:
        """
        Read a body with the span memory. The rules read single unknown spans. If too many are unknown, return
        None, so that the rules read the whole body. Yields so that the event loop can run.
        """
        options, found = self._options, None
        clock = TimeSliceClock()
        try:
            with suppress(*_UNREADABLE):  # the rules read the body again and report its errors
                found = yield from self._look_up_spans(selected, clock)
        except self._native.panic as error:
            self._native.count_fault(error)
        if found is None:
            self.spans["rules"] += selected.spans
            return None
        unknown = sum([part.kinds.count(None) for part in found])
        self.spans["reading"] += selected.spans - unknown
        self.spans["rules"] += unknown
        outcome = ReadOutcome(keep_tags=options.keep_tags, received=selected.spans)
        if check_unrelated_and_read_unknown_spans(found, options):
            yield from add_unrelated_spans_to_outcome(found, outcome, options, clock)
            return outcome
        reader = SpanReader(outcome, options)
        yield from self._add_spans_from_memory_or_rules(found, reader, outcome, clock)
        for _ in reader.add_items_that_waited():
            outcome.pack_finished_part_if_full()
            yield
        return outcome

    def _add_spans_from_memory_or_rules(
        self,
        looked_up_spans: Sequence[LookedUpSpans],
        reader: SpanReader,
        outcome: ReadOutcome,
        clock: TimeSliceClock,
    ) -> Iterator[None]:
        place = 0
        entered: SpanContext | None = None
        for part in looked_up_spans:
            if part.context is not entered:
                reader.set_current_resource_and_scope(part.context.resource, part.context.scope)
                entered = part.context
            for kind, row, span in zip(part.kinds, part.rows, part.spans, strict=True):
                if kind is None:
                    reader.read_item(place, span)
                else:
                    reader.add_read_span(place, kind.form.build_read_span(row[FIRST_PLACE:], row[2]))
                if place % _TURN == 0 and clock.is_over():
                    outcome.pack_finished_part_if_full()
                    yield
                    clock.begin_slice()
                place += 1
        outcome.pack_finished_part_if_full()
        yield

    def _look_up_spans(
        self, selected: SelectedBody, clock: TimeSliceClock
    ) -> Generator[None, None, list[LookedUpSpans] | None]:
        found: list[LookedUpSpans] = []
        options = self._options
        number, resource = -1, EncodedResource(b"")
        groups = self._memory.groups(selected.body, MOST_ITEMS)
        for at, encoded_resource, encoded_scope, spans in groups or ():
            if at != number:
                number, resource = at, EncodedResource(encoded_resource)
            context = self._contexts.find_or_add_context(resource, encoded_scope, options)
            for begin in range(0, len(spans), _LOOKED_FOR):
                chunk = spans[begin : begin + _LOOKED_FOR] if len(spans) > _LOOKED_FOR else spans
                rows = (
                    self._memory.find(context.number, chunk, context.texts)
                    if context.number
                    else [(_NEW,)] * len(chunk)
                )
                kinds = [self._kinds[row[0]] if len(row) > 1 else None for row in rows]
                found.append(LookedUpSpans(context, chunk, rows, kinds))
                if clock.is_over():
                    yield
                    if self._options is not options:
                        return None
                    clock.begin_slice()
        unknown = sum([part.kinds.count(None) for part in found])
        most = selected.spans * (1 - self._pace.least_known)
        # with many unknown spans, reading the whole request is faster than reading the spans one by one
        if unknown > most:
            self._note_failed_lookup(selected, found, most)
            return None
        self._trials.note_lookup_result(selected.sender, failed_span_count=0)
        if not unknown and self._hits > selected.spans:
            is_compared = [row[1] for part in found for row in part.rows]
            if True not in is_compared:
                self._hits -= selected.spans
                return found
        for part in found:
            for place in range(len(part.rows)):
                if not self._accept_hit_unless_comparison_due(part, place):
                    if not self._compare_known_or_decode_unknown_span(part, place, selected.times):
                        return None
                    if clock.is_over():
                        yield
                        if self._options is not options:
                            return None
                        clock.begin_slice()
        return found

    def _note_failed_lookup(
        self, selected: SelectedBody, looked_up_spans: Sequence[LookedUpSpans], max_unknown_spans: float
    ) -> None:
        unknown = [
            (part.context, row[0], span)
            for part in looked_up_spans
            for kind, row, span in zip(part.kinds, part.rows, part.spans, strict=True)
            if kind is None
        ]
        new = [one for one in unknown if one[1] == _NEW and one[0].number]
        is_hopeless = len(unknown) - len(new) > max_unknown_spans
        self.misses.update([REASONS[reason] for _, reason, _ in unknown])
        first = self._chance.randrange(len(new)) if new else 0
        wanted = MOST_SEEN if self._trials.has_large_failed_lookup_budget else int(max_unknown_spans) + 1
        seen = [] if is_hopeless else [*new[first:], *new[:first]][:wanted]
        for context, _, encoded in seen:
            span = protobuf_decoder.decode_span(context.resource, context.scope, encoded)
            self._note_sample_of_kind(context, span, encoded, selected.times)
        # cost of lookups without success, in the time that it takes to read a span
        in_vain = len(seen) + len(unknown) // 4 + 1
        self._trials.note_lookup_result(selected.sender, failed_span_count=in_vain, is_hopeless=is_hopeless)

    def _accept_hit_unless_comparison_due(self, looked_up_spans: LookedUpSpans, span_index: int) -> bool:
        if looked_up_spans.kinds[span_index] is None:
            return False
        self._hits -= 1
        return self._hits > 0 and not looked_up_spans.rows[span_index][1]

    def _compare_known_or_decode_unknown_span(
        self, looked_up_spans: LookedUpSpans, span_index: int, represented_spans: int
    ) -> bool:
        """
        Compare a known span with the rules' result, or decode an unknown span in `looked_up_spans` for the
        rules.

        Return False if the rules read a known span differently, because other spans of the request may differ
        as well.
        """
        context, kind, row = (
            looked_up_spans.context,
            looked_up_spans.kinds[span_index],
            looked_up_spans.rows[span_index],
        )
        encoded = looked_up_spans.spans[span_index]
        span = protobuf_decoder.decode_span(context.resource, context.scope, encoded)
        if kind is not None:
            return self._compare_with_rules_or_forget(looked_up_spans, span_index, kind, span)
        self.misses[REASONS[row[0]]] += 1
        if row[0] == _NEW and context.number:
            self._note_sample_of_kind(context, span, encoded, represented_spans)
        looked_up_spans.spans[span_index], looked_up_spans.rows[span_index] = span, row_of_unknown_span(span)
        return True

    def _draw_hit_count_until_comparison(self) -> int:
        return self._chance.randrange(1, 2 * ONE_IN)

    def _compare_with_rules_or_forget(
        self, looked_up_spans: LookedUpSpans, span_index: int, kind: LearnedKind, span: Span
    ) -> bool:
        if self._hits <= 0:
            self._hits = self._draw_hit_count_until_comparison()
        context = looked_up_spans.context
        fields = differing_fields(kind, looked_up_spans.rows[span_index], span, self._options)
        if not fields:
            self.compared["same"] += 1
            return True
        self.compared["different"] += 1
        self._memory.learn(context.number, looked_up_spans.spans[span_index], None)
        call, scope = kind.form.read.call, context.scope.name[:64] or "no scope"
        source = "" if call is None else call.record.source
        if len(self.different) < MOST_DIFFERENCES:
            self.different.append(ReadOtherwise(source, scope, fields))
        _log.error(
            "the memory of spans read a span of %s differently from the rules and forgot its shape; "
            "differing fields: %s",
            scope,
            ", ".join(fields)[:_LONGEST_DIFFERENCES],
            extra={"action": "memory_different"},
        )
        return False

    def _note_sample_of_kind(
        self, context: SpanContext, span: Span, encoded: bytes, represented_spans: int
    ) -> None:
        """
        Count a span of an unknown kind, and store it as a sample to learn from if the kind is frequent. A
        kind with token counts inside content is never learned, because the text differs in each span.
        """
        is_free = self._memory.is_free
        attributes = {name: value for name, value in span.attributes.items() if not is_free(name.encode())}
        kind = hash((context.number, span.name, tuple(attributes)))
        if not self._samples.count_span_and_check_if_sample_wanted(kind, represented_spans):
            return
        if any(RULES[name] is REDUCED for name in attributes):
            return
        sample = msgspec.structs.replace(span, attributes=attributes)
        self._samples.add_sample(kind, SpanSample(sample, remove_content_from_span(encoded, is_free)))
        while self._pace.spans_a_kind == 0 and self.learn_one_span_kind():
            pass

    def learn_one_span_kind(self) -> bool:
        """
        Learn to read the most frequent waiting kind of span, without a pause. Return False if no kind waits,
        or if learning is too early.
        """
        learning = self.begin_learning_next_span_kind()
        return learning is not None and all(True for _ in learning)

    def begin_learning_next_span_kind(self) -> Iterator[None] | None:
        sample = self._samples.pop_most_frequent()
        return None if sample is None else self._learn_span_kind_of_sample(sample)

    def _learn_span_kind_of_sample(self, sample: SpanSample) -> Iterator[None]:
        span, encoded = sample.span, sample.encoded
        try:
            context, texts = self._contexts.find_or_assign_context_number(span.resource, span.scope)
            if not context or not self._free_room_for_new_kind():
                return
            new_names = span_attribute_names(encoded) - self._names
            try:
                self._pass_attribute_names_to_compiled_module(
                    new_names, names_read_only_for_tags(span, self._options) if new_names else set()
                )
                if self._memory.find(context, [encoded], texts)[0] != (_NEW,):
                    return
                yield from self._learn_span_kind_in_rounds(context, texts, span, encoded)
            except Exception:  # noqa: BLE001 - the rules read the span in any case
                self._pass_attribute_names_to_compiled_module(new_names - self._names, set())
                self._memory.learn(context, encoded, None)
                _log.exception("a kind of spans could not be learned", extra={"action": "memory_not_learned"})
        except self._native.panic as error:
            self._native.count_fault(error)

    def _pass_attribute_names_to_compiled_module(
        self, attribute_names: Set[str], tag_only_names: Set[str]
    ) -> None:
        """
        Tell the compiled module which attribute names the rules for spans read. `tag_only_names` are the names whose
        texts only become tags.
        """
        for name in attribute_names:
            self._names.add(name)
            slot = slots.varying_value_slot_or_zero(name)
            if name in tag_only_names:
                self._tags.add(name)
                slot = slots.TAG
            self._memory.name(name.encode(), slots.decoding_rule_number(name), slot)

    def _free_room_for_new_kind(self) -> bool:
        if self._is_below_limits(1):
            return True
        kept = set(self._memory.sweep())
        self._kinds = {number: kind for number, kind in self._kinds.items() if number in kept}
        if self._is_below_limits(0.75):
            return True
        self.forget_learned_span_kinds()
        return False

    def _is_below_limits(self, fraction: float) -> bool:
        kinds, size = self._memory.size()
        if len(self._names) >= MOST_NAMES or len(self._reads) >= MOST_SHAPES:
            return False
        return kinds < MOST_KINDS * fraction and size < MOST_BYTES * fraction

    def _learn_span_kind_in_rounds(
        self, context_number: int, resource_texts: tuple[str, ...], span: Span, encoded: bytes
    ) -> Iterator[None]:
        options, reads, kind = self._options, set[str](), None
        for _ in range(_ROUNDS):
            reads |= self._reads.get((context_number, *span.attributes), set())
            varying = self._memory.learn(context_number, encoded, slots.encode_texts(reads))
            if varying is None:
                return  # such a span is unusual, so it has no kind
            learned = yield from learn_span_kind(
                span, varying[0], resource_texts, varying[1], reads, self._tags, options, self._chance
            )
            if self._options != options:
                return
            self._memory.ask(slots.encode_texts(learned.asked))
            if self._contexts.add_distinguishing_attributes(learned.of_resource):
                context_number, resource_texts = self._contexts.find_or_assign_context_number(
                    span.resource, span.scope
                )
            elif learned.reads == reads:
                kind = learned.kind
                break
            reads = learned.reads
        self._reads[context_number, *span.attributes] = reads
        number = NEVER
        if kind is not None:
            number = self._last_kind = self._last_kind + 1
            self._kinds[number] = kind
        self._memory.learn(context_number, encoded, slots.encode_texts(reads), number)
