"""
Spans of every dialect into inference records: the trace side of one payload.

A span is read once when it comes; which spans describe one call, and what they inherit from one another, is settled
when the last one was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gateway.normalise.options import Options
from gateway.normalise.otlp import dialects, explanation, item_tags, rows, semconv, shapes
from gateway.normalise.otlp.calls import Call, call_of
from gateway.normalise.otlp.decoding.model import Attributes, Resource, Scope, Span
from gateway.normalise.otlp.dialect import Dialect, has_usage, is_tool_or_agent, never
from gateway.normalise.otlp.products import tollhouse
from gateway.normalise.otlp.shapes import Shape, shape_of
from gateway.normalise.otlp.trace_tree import TURN, Family, Key, Node
from gateway.normalise.otlp.who import NOBODY, device_of, end_user_of, nearest, resource_who, who_of
from gateway.normalise.outcome import DUPLICATE, IMPLAUSIBLE, MERGED, NOT_AI, PART, UNRECOGNISED_AI, Outcome
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading import vocabulary as words
from spool.identity import of_call


class Spans:
    """Takes spans, fills the outcome; calls are booked in `finish`."""

    def __init__(self, outcome: Outcome, options: Options) -> None:
        self._outcome = outcome
        self._keep = options.keep_attributes
        self._host_id = options.host_id
        self._family = Family()
        self._nodes = self._family.nodes
        self._calls: list[tuple[Call, Key | None]] = []  # with the parent
        self._ended: set[str] = set()  # traces that can be settled
        self._enough = PART  # calls for which it pays to settle them
        self._has_runs = False  # these repeat one another across traces
        self._resource: Resource | None = None
        self._scope: Scope | None = None
        self._sender = dialects.OTEL
        self._resource_who = NOBODY
        self._device: str | None = None  # the resource's
        self._resource_tags: dict[str, str] = {}

    def take(self, place: int, span: Span) -> None:
        """Every span ends up in exactly one term of the books, here or in `finish`."""
        if span.scope is not self._scope or span.resource is not self._resource:
            self._enter(span.resource, span.scope)
        shape = shape_of(span.attributes)
        if shape.marks & shapes.TOLLHOUSE:
            tollhouse.take(place, span, self._outcome)
            return
        if shape.marks & shapes.PORTKEY and rows.take(
            rows.PORTKEY, place, span.attributes, self._outcome, tags=self._resource_tags, device=self._device
        ):
            return
        dialect = dialects.spoken(span, shape, self._sender)
        operation = dialects.operation_of(span, shape, dialect)
        trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_id
        key = (trace_id, span_id) if trace_id is not None and span_id is not None else None
        parent = (trace_id, parent_id) if trace_id is not None and parent_id is not None else None
        call = None
        if operation is None:
            self._ignore(span, shape, dialect)
        elif key is not None and (known := self._nodes.get(key)) is not None and known.call is not None:
            self._outcome.ignored[DUPLICATE] += 1
            return
        else:
            call = self._call(place, span, shape, dialect, operation)
            if call is not None:
                self._calls.append((call, parent))
                self._has_runs |= call.run_id is not None
        if key is not None and (node := self._node(span, shape, dialect, parent, call)) is not None:
            self._nodes[key] = node

    def settle(self, ended: frozenset[str]) -> Iterator[None]:
        """Book the calls of traces that are whole and forget their spans, once there are enough of them."""
        self._ended |= ended
        if len(self._calls) < self._enough or self._has_runs:
            return
        everything, rest = self._calls, self._nodes
        whole, self._family = Family(), Family()
        self._nodes = self._family.nodes
        for key, node in rest.items():
            (whole.nodes if key[0] in self._ended else self._nodes)[key] = node
        calls: list[tuple[Call, Key | None]] = []
        self._calls = []
        for call, parent in everything:
            is_whole = call.record.trace_id is None or call.record.trace_id in self._ended
            (calls if is_whole else self._calls).append((call, parent))
        self._ended.clear()
        self._enough = max(PART, 2 * len(self._calls))  # each is looked at a few times, however many wait
        yield from self._book_all(whole, calls)

    def finish(self) -> Iterator[None]:
        """Book the calls that are left."""
        yield from self._book_all(self._family, self._calls)

    def _book_all(self, family: Family, calls: Sequence[tuple[Call, Key | None]]) -> Iterator[None]:
        """Twins are dropped, what a call left unsaid comes from those around it."""
        dropped = yield from family.drop_twins()
        dropped |= _repeated_runs(call for call, _ in calls)
        for number, (call, parent) in enumerate(calls, start=1):
            if number % TURN == 0:
                yield
            if call.place in dropped:
                self._outcome.ignored[MERGED] += 1
            else:
                self._book(call, parent, family)

    def _enter(self, resource: Resource, scope: Scope) -> None:
        self._sender = dialects.near(resource, scope)
        self._scope = scope
        if resource is not self._resource:
            self._resource = resource
            self._resource_who = resource_who(resource.attributes)
            self._device = device_of(resource.attributes, self._host_id)
            self._resource_tags = item_tags.resource_tags(resource.attributes, self._keep)

    def _call(self, place: int, span: Span, shape: Shape, dialect: Dialect, operation: str) -> Call | None:
        try:
            call = call_of(place, span, shape, dialect, operation)
        except words.Implausible as error:
            self._outcome.reject(place, IMPLAUSIBLE, f"span {place}: {error}")
            return None
        call.resource_who = self._resource_who
        call.device = self._device
        call.record.user = call.who.user
        call.record.tags = self._tags(span.attributes, shape, dialect, call.who.user)
        if dialect.refine is not None:
            dialect.refine(span, call.record)
        if self._outcome.why is not None:
            call.why = explanation.of(span, call, dialect)
        return call

    def _tags(self, attributes: Attributes, shape: Shape, dialect: Dialect, user: str | None) -> dict[str, str]:
        tags = self._resource_tags.copy()
        if shape.named_tags or shape.metadata or self._keep:
            self._outcome.left_out += item_tags.add_tags(tags, attributes, shape, self._keep)
        for name in dialect.tags:
            if (value := words.text(attributes.get(name))) is not None:
                self._outcome.left_out += not tag_rules.put(tags, name, value)
        if shape.marks & shapes.END_USER and (end_user := end_user_of(attributes, user)) is not None:
            self._outcome.left_out += not tag_rules.put(tags, "end_user", end_user)
        return tags

    def _node(self, span: Span, shape: Shape, dialect: Dialect, parent: Key | None, call: Call | None) -> Node | None:
        """What the spans below may ask of this one; None when there is nothing to ask."""
        attributes = span.attributes
        who = call.who if call is not None else who_of(attributes, shape)
        agent = semconv.first_text(attributes, shape.agent) if shape.agent else None
        if call is not None:
            call.agent = agent
            is_border = call.record.operation == "invoke_agent"
        else:
            is_border = is_tool_or_agent(span, shape) or (dialect.is_agent is not None and dialect.is_agent(span))
        if parent is None and call is None and who is NOBODY and agent is None:
            return None
        return Node(parent, who, agent, is_border, call)

    def _ignore(self, span: Span, shape: Shape, dialect: Dialect) -> None:
        # A dialect or a kind of span that is known is understood: it is no call, or repeats one.
        is_known = dialect is not dialects.OTEL or bool(shape.marks & shapes.KIND)
        if shape.marks & shapes.AI_NAME and (not is_known or _is_strange(span, shape, dialect)):
            self._outcome.ignored[UNRECOGNISED_AI] += 1
            self._outcome.show_shape(span.attributes)
        else:
            self._outcome.ignored[NOT_AI] += 1

    def _book(self, call: Call, parent: Key | None, family: Family) -> None:
        record, who = call.record, nearest(call.who, call.twin_who)
        if parent is not None:
            above = family.above(parent)
            who = nearest(who, above.who)
            if call.agent is None:
                call.agent = above.agent
        who = nearest(who, call.resource_who)
        if who is not NOBODY:
            record.user, record.team, record.session, record.api_key = who
        if call.why is not None:
            explanation.add_inherited(call.why, who)
        if call.agent is not None and "agent" not in record.tags:
            self._outcome.left_out += not tag_rules.put(record.tags, "agent", call.agent)
        self._outcome.note_session(record, call.resource_who.session)
        own = call.own_id
        identity = of_call(record, response_id=call.response_id, shared_id=call.shared_id, span=own is None, own_id=own)
        self._outcome.add(record, identity, call.why, device=call.device)


def _is_strange(span: Span, shape: Shape, dialect: Dialect) -> bool:
    """Whether a span counts something under an operation that nobody has described."""
    operation = words.text(span.attributes.get("gen_ai.operation.name"))
    if operation is None or operation in semconv.NO_CALLS or operation.endswith("_memory"):
        return False
    if operation in words.OPERATIONS or dialect.operation is never or dialects.says_its_kind(shape):
        return False
    return has_usage(span, shape) or semconv.first(span.attributes, shape.cost) is not None


def _repeated_runs(calls: Iterable[Call]) -> set[int]:
    """Of the spans that report one run, all but the one that ends last."""
    last: dict[str, Call] = {}
    repeated: set[int] = set()
    for call in calls:
        if call.run_id is None:
            continue
        other = last.get(call.run_id)
        if other is None:
            last[call.run_id] = call
            continue
        later, earlier = (call, other) if (call.record.end_time or 0) >= (other.record.end_time or 0) else (other, call)
        last[call.run_id] = later
        repeated.add(earlier.place)
    return repeated
