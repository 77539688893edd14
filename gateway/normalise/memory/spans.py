"""
The memory of spans: what reading a span by itself gives is remembered for its kind, and found by the
compiled module.

Everything that is not plain is read as it always was; the rules stay the only rules.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from gateway.normalise.memory import slots
from gateway.normalise.memory.forms import SpanForm, Varying
from gateway.normalise.memory.learning import is_read_as, learn
from gateway.normalise.memory.pace import MemoryPace, Sample, Samples, Trials
from gateway.normalise.options import Options
from gateway.normalise.otlp.admission import DROPPED, REDUCED, RULES
from gateway.normalise.otlp.decoding import protobuf_decoder, wire_view
from gateway.normalise.otlp.decoding.pieces import Malformed
from gateway.normalise.otlp.model import Resource, Scope, Span
from gateway.normalise.otlp.spans.reader import SpanReader
from gateway.normalise.outcome import Outcome
from gateway.normalise.payload.body_limits import ITEM_BYTES, SLICE_BYTES, SliceClock
from spool.packed.native import ItemMemory, Native

LARGEST: Final = 512 * 1024  # bytes of a body
MOST_ITEMS: Final = 4096  # of a body
MOST_KINDS: Final = 4096
MOST_SHAPES: Final = 4096
MOST_NAMES: Final = 16_384
MOST_CONTEXTS: Final = 4096
MOST_BYTES: Final = 8 * 1024 * 1024  # of keys, names and texts
ONE_IN: Final = 1000  # hits that are compared, once a kind is no longer new
_LARGEST_CONTEXT: Final = 8192
_LONGEST_NAME: Final = 256
_ROUNDS: Final = 24  # of learning, until no variation reads more
_TURN: Final = 16
NEVER: Final = 2**32 - 1

_log = logging.getLogger(__name__)

REASONS: Final = ("layout", "new", "unlearnable", "not_plain", "content", "events")
_NEW: Final = REASONS.index("new")
_NO_VALUE: Final = b"\x12\x00"
_UNREADABLE: Final = (DecodeError, UnicodeDecodeError, Malformed)
_Groups = Sequence[tuple[int, bytes, bytes, Sequence[bytes]]]


class Context(NamedTuple):
    """Resource and scope of neighbouring spans; `number` is 0 if their spans are not looked for."""

    number: int
    resource: Resource
    scope: Scope


class _Found(NamedTuple):
    """A span that is known, by its form and the row of the module; or one for the rules."""

    context: Context
    form: SpanForm | None
    row: tuple[Any, ...]
    span: Span | None = None


class SpanMemory:
    """Kinds of spans and what they become."""

    def __init__(self, native: Native, pace: MemoryPace | None = None) -> None:
        self._native = native
        self._memory: ItemMemory = native.item_memory(plan=slots.plan(), has_figures=slots.has_figures)
        self._pace = pace or MemoryPace()
        self._options = Options()
        self._chance = random.Random(secrets.randbits(64))
        self._hits = self._next_hits()
        self._forms: dict[int, SpanForm] = {}
        self._last_form = 0  # no number is given twice: a body may be half looked up
        self._contexts: dict[tuple[Any, ...], int] = {}
        self._last_context = 0
        self._reads: dict[tuple[int | str, ...], set[str]] = {}
        self._names: set[str] = set()
        self._of_resource: set[str] = set()
        self._trials = Trials(self._pace.most_skipped)
        self._samples = Samples(self._pace)
        self._times = 1  # for how many requests the one at hand is looked at
        self.spans: Counter[str] = Counter()  # by who read them
        self.misses: Counter[str] = Counter()
        self.compared: Counter[str] = Counter()

    @property
    def kinds(self) -> int:
        return self._memory.size()[0]

    @property
    def size(self) -> int:
        """Bytes of keys, names and texts."""
        return self._memory.size()[1]

    def clear(self) -> None:
        """Forget everything."""
        self._memory.clear()
        self._forms, self._contexts, self._reads, self._names = {}, {}, {}, set()
        self._trials = Trials(self._pace.most_skipped)
        self._samples.clear()

    def normalise(self, body: bytes, options: Options) -> Generator[None, None, Outcome | None]:
        """Normalise an export request of spans; None if it is for the rules alone."""
        if len(body) > LARGEST or options.explain or not self._native.is_on:
            return None
        if options is not self._options and options != self._options:
            self.clear()
            self._options = options
        try:
            found = yield from self._find(body)
        except self._native.panic as error:
            self._native.fail(error)
            return None
        if found is None:
            return None
        outcome = Outcome(keep_tags=options.keep_tags, received=len(found))
        reader = SpanReader(outcome, options)
        yield from self._take(found, reader, outcome)
        for _ in reader.finish():
            outcome.pack()
            yield
        return outcome

    def _take(self, found: list[_Found], reader: SpanReader, outcome: Outcome) -> Iterator[None]:
        clock = SliceClock()
        entered: Context | None = None
        for place, (context, form, row, span) in enumerate(found):
            if context is not entered:
                reader.enter(context.resource, context.scope)
                entered = context
            if form is not None:
                values = (*row[1:6], *row[6])
                reader.take_read(place, form.read_span(values, row[7]))
            elif span is not None:
                reader.take(place, span)
            if place % _TURN == 0 and clock.is_over():
                outcome.pack()
                yield
                clock.begin()
        outcome.pack()
        yield

    def _find(self, body: bytes) -> Generator[None, None, list[_Found] | None]:
        """Look every span up, and decode what is for the rules; None if the rules are to see the whole body."""
        groups = self._memory.groups(body, min(MOST_ITEMS, self._options.max_items))
        if groups is None:
            self.misses["layout"] += 1
            return None
        count = sum([len(spans) for _, _, _, spans in groups])
        items = 2 * len(groups) + count
        if items > self._options.max_items or items * ITEM_BYTES - len(body) >= SLICE_BYTES:
            return None
        self._samples.count(count)
        scopes = [scope for _, _, scope, _ in groups]
        found, times = None, self._trials.stands_for(scopes)
        if times:
            self._times = times
            with suppress(*_UNREADABLE):  # the rules say what is wrong
                found = yield from self._look_up(groups, count)
            self._trials.tell(scopes, is_known=found is not None)
        known = sum([one.form is not None for one in found or ()])
        self.spans["reading"] += known
        self.spans["rules"] += count - known
        return found

    def _look_up(self, groups: _Groups, count: int) -> Generator[None, None, list[_Found] | None]:
        """Return what is known of each span; None as soon as too few are known, or if settings changed meanwhile."""
        found: list[_Found] = []
        options = self._options
        unknown, most = 0, count * (1 - self._pace.least_known)
        number, resource, clock = -1, Resource({}), SliceClock()
        for at, encoded_resource, encoded_scope, spans in groups:
            if at != number:
                number, resource = at, protobuf_decoder.one_resource(encoded_resource)
            scope = protobuf_decoder.one_scope(encoded_scope)
            context = Context(self._context(resource, scope), resource, scope)
            for span in spans:
                one = self._found(context, span)
                unknown += len(one.row) == 1
                if unknown > most:  # to read each by itself takes longer than all at once
                    return None
                found.append(one)
                if len(found) % _TURN == 0 and clock.is_over():
                    yield
                    if self._options is not options:
                        return None
                    clock.begin()
        return found

    def _found(self, context: Context, encoded: bytes) -> _Found:
        row = self._memory.find(context.number, encoded) if context.number else (_NEW,)
        if len(row) > 1:
            self._hits -= 1
            form = self._forms[row[0]]
            if self._hits and not row[8]:
                return _Found(context, form, row)
        span = protobuf_decoder.one_span(context.resource, context.scope, encoded)
        if len(row) > 1:
            self._compare(context, row, encoded, span)
        else:
            self.misses[REASONS[row[0]]] += 1
            if row[0] == _NEW and context.number:
                self._sample(context, span, encoded)
        return _Found(context, None, row, span)

    def _next_hits(self) -> int:
        return self._chance.randrange(1, 2 * ONE_IN)

    def _compare(self, context: Context, row: tuple[Any, ...], encoded: bytes, span: Span) -> None:
        if self._hits <= 0:
            self._hits = self._next_hits()
        varying = Varying(*row[1:8])
        if is_read_as(self._forms[row[0]], varying, span, self._options):
            self.compared["same"] += 1
            return
        self.compared["different"] += 1
        self._memory.learn(context.number, encoded, None)
        _log.error(
            "the memory of spans read a span of %s otherwise than the rules, and forgot its shape",
            context.scope.name[:64] or "no scope",
            extra={"action": "memory_different"},
        )

    def _context(self, resource: Resource, scope: Scope) -> int:
        """Return the number of a context; 0 if it is not remembered."""
        attributes = resource.attributes
        read = tuple([(name, repr(attributes[name])) for name in attributes if name in self._of_resource])
        key = (tuple(attributes), read, scope.name, scope.version)
        number = self._contexts.get(key)
        if number is None:
            size = sum(map(len, attributes)) + sum(len(text) for _, text in read) + len(scope.name)
            if size > _LARGEST_CONTEXT:
                return 0
            if len(self._contexts) >= MOST_CONTEXTS:
                self.clear()
            self._last_context += 1
            number = self._contexts[key] = self._last_context
            texts = [attributes[name] for name, _ in read if type(attributes[name]) is str]
            texts += [scope.name, scope.version]
            self._memory.context(number, [text.encode() for text in texts])
        return number

    def _sample(self, context: Context, span: Span, encoded: bytes) -> None:
        """Take a span of a kind that may be learned; those with figures in content have new ones in each span."""
        kind = hash((context.number, span.name, tuple(span.attributes)))
        if not self._samples.is_wanted(kind, self._times):
            return
        if any(RULES[name] is REDUCED for name in span.attributes):
            return
        self._samples.add(kind, Sample(span, _without_content(encoded)))
        while self._pace.spans_a_kind == 0 and self.learn_one():
            pass

    def learn_one(self) -> bool:
        """Learn the kind that is due; False if none is."""
        learning = self.learning()
        return learning is not None and all(True for _ in learning)

    def learning(self) -> Iterator[None] | None:
        """Return the learning of the kind that is due, in short turns; None if none is."""
        sample = self._samples.take()
        return None if sample is None else self._learned(sample)

    def _learned(self, sample: Sample) -> Iterator[None]:
        span, encoded = sample.span, sample.encoded
        try:
            context = self._context(span.resource, span.scope)
            if not context or not self._has_room():
                return
            for name in _names(encoded) - self._names:
                self._names.add(name)
                self._memory.name(name.encode(), slots.rule_of(name), slots.slot_of(name))
            if self._memory.find(context, encoded)[0] != _NEW:
                return
            try:
                yield from self._learn(context, span, encoded)
            except Exception:  # noqa: BLE001 - the rules read the span all the same
                self._memory.learn(context, encoded, None)
                _log.exception("a kind of spans could not be learned", extra={"action": "memory_not_learned"})
        except self._native.panic as error:
            self._native.fail(error)

    def _has_room(self) -> bool:
        """True if one more may be learned. Kinds that nobody asks for make room; if that is not enough all do."""
        if self._is_below(1):
            return True
        kept = set(self._memory.sweep())
        self._forms = {number: form for number, form in self._forms.items() if number in kept}
        if self._is_below(0.75):
            return True
        self.clear()
        return False

    def _is_below(self, part: float) -> bool:
        kinds, size = self._memory.size()
        if len(self._names) >= MOST_NAMES or len(self._reads) >= MOST_SHAPES:
            return False
        return kinds < MOST_KINDS * part and size < MOST_BYTES * part

    def _learn(self, context: int, span: Span, encoded: bytes) -> Iterator[None]:
        options, reads, form = self._options, set[str](), None
        for _ in range(_ROUNDS):
            reads |= self._reads.get((context, *span.attributes), set())
            varying = self._memory.learn(context, encoded, _encoded(reads))
            if len(varying) != 2:
                return  # not plain: no kind
            learned = yield from learn(span, varying[0], varying[1], reads, options, self._chance)
            if self._options != options:
                return
            if self._tell_apart(learned.of_resource - self._of_resource):
                context = self._context(span.resource, span.scope)
            elif learned.reads == reads:
                form = learned.form
                break
            reads = learned.reads
        self._reads[context, *span.attributes] = reads
        number = NEVER
        if form is not None:
            number = self._last_form = self._last_form + 1
            self._forms[number] = form
        self._memory.learn(context, encoded, _encoded(reads), number)

    def _tell_apart(self, names: set[str]) -> bool:
        """Tell contexts apart by values of the resource that are read for the first time; False if there are none."""
        self._of_resource |= names
        for key in [key for key in self._contexts if not names.isdisjoint(key[0])]:
            del self._contexts[key]
        return bool(names)


def _encoded(names: set[str]) -> list[bytes]:
    return [name.encode() for name in sorted(names)]


def _names(encoded: bytes) -> set[str]:
    """Return the names of a span's attributes, but those that are too long."""
    pairs = wire_view.Span.FromString(encoded).attributes
    names = {str(wire_view.EncodedKeyValue.FromString(pair).key) for pair in pairs}
    return {name for name in names if len(name.encode()) <= _LONGEST_NAME}


def _without_content(encoded: bytes) -> bytes:
    """Return a span without values that are content, and without what is not looked at."""
    span = wire_view.Span.FromString(encoded)
    span.ClearField("trace_state")
    span.ClearField("links")
    span.ClearField("events")
    span.status.message = ""
    kept = []
    for pair in span.attributes:
        read = wire_view.EncodedKeyValue.FromString(pair)
        if RULES[read.key] in (DROPPED, REDUCED):
            read.ClearField("value")
            pair = read.SerializeToString() + _NO_VALUE
        kept.append(pair)
    del span.attributes[:]
    span.attributes.extend(kept)
    stripped: bytes = span.SerializeToString()
    return stripped
