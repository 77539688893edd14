"""
Conversion of the spans of one payload to inference records, for every dialect.

Each span is read once, on arrival. Duplicates of one call and inherited values are resolved after the last
span of a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import NO_CALLER, SpanCall, fill_caller, merge_callers
from gateway.normalise.otlp.conventions import OTEL, is_model_of_vendor_sdk
from gateway.normalise.otlp.model import Resource, Scope, Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanRole, TelemetryProduct
from gateway.normalise.otlp.senders import (
    Senders,
    process_identity,
    product_of_sender,
    run_and_parent_run,
    stated_caller,
    work_tags_of_span,
)
from gateway.normalise.otlp.shapes import find_or_build_shape
from gateway.normalise.otlp.span_rules import (
    has_token_counts,
    is_agent_span,
    is_of_sdk_naming_each_call,
    is_tool_or_agent_span,
    no_operation_of_span,
)
from gateway.normalise.otlp.spans.calls import read_call_of_span, read_meters
from gateway.normalise.otlp.spans.explanation import add_origins_of_caller, origins_of_fields
from gateway.normalise.otlp.spans.readings import (
    CallNames,
    SpanOrigin,
    SpanReadingPlan,
    find_or_add_reading,
    span_origin_of_sender,
)
from gateway.normalise.otlp.spans.trace_tree import (
    MODEL_CALL,
    NO_WORK,
    ROOT,
    Key,
    TraceNode,
    TraceTree,
    UsageSpan,
    assign_stream_reports_to_start_spans,
    find_calls_repeated_by_guesses,
    spans_without_call,
)
from gateway.normalise.outcome import (
    DUPLICATE,
    GUARD,
    MERGED,
    NOT_AI,
    PART,
    TEST_SPAN,
    UNRECOGNISED_AI,
    ReadOptions,
    ReadOutcome,
)
from gateway.normalise.payload.body_limits import TimeSliceClock
from gateway.normalise.reading import operations, values
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.assistants import ASSISTANTS
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from spool.identity import (
    AS_ASSISTANT,
    AS_EVENT,
    AS_GATEWAY,
    AS_SPAN,
    AS_STREAM,
    BELOW_STREAM,
    NestedReport,
    RelayedReport,
    build_nested_report,
    build_relayed_report,
    call_identity,
    dedup_keys_of_request_id,
    is_encrypted_id,
    links_between_stream_reports,
    links_by_session_and_end_time,
    links_to_server_and_caller,
    with_dedup_keys_and_links,
    with_dedup_keys_of_trace,
    with_span_above,
)
from spool.log.pending_spans import BESIDE, run_parent_and_joined_ancestors

RUN = "run"  # field with the names of runs that only this product uses
_TURN = 16  # calls that are added to the outcome between two checks of the clock
_NO_ROLE = SpanRole()
_NO_ORIGIN = SpanOrigin(OTEL, (), is_own_scope=False)


class SpanReader:
    """Reads the spans of one payload into an outcome. Most calls are added only in `add_items_that_waited`."""

    def __init__(self, outcome: ReadOutcome, options: ReadOptions) -> None:
        self._outcome = outcome
        self._senders = Senders(outcome, options)
        self._tree = TraceTree()
        self._nodes = self._tree.nodes
        self._calls: list[tuple[SpanCall, Key | None]] = []  # pairs of a call and the key of its parent span
        self._usage_spans: list[UsageSpan] = []
        self._ended: set[str] = set()  # ids of traces that have no further spans in this payload
        self._enough = PART  # number of calls from which adding finished traces early is worthwhile
        # whether any span reports the result of a stream that a sibling span started
        self._has_streams = False
        self._has_links = False  # whether the other report of any call may be in another payload
        # the spans above calls that a sibling span of another scope may report as well
        self._above_siblings: set[Key | None] = set()
        # whether any call of a span that names no operation may repeat the call of a sibling span
        self._has_guesses = False
        self._has_inner = False  # whether any call has a parent, so that it may repeat an enclosing call
        self._has_steps = False  # whether any span is not a call
        self._has_runs = False  # whether spans of several traces repeat the same run
        # whether any stream started in a span without a parent, so that its report may be in another trace
        self._has_loose_streams = False
        self._resource: Resource | None = None
        self._scope: Scope | None = None
        self._origin = _NO_ORIGIN

    def read_item(self, item_index: int, span: Span) -> None:
        """Read a span. It is counted exactly once in the outcome, here or in `add_items_that_waited`."""
        if span.scope is not self._scope or span.resource is not self._resource:
            self._set_current_resource_and_scope(span.resource, span.scope)
        attributes = span.attributes
        shape = find_or_build_shape(attributes)
        if shape.taken_by and self._read_span_of_tollhouse(item_index, span, shape):
            return
        reading = shape.readings.get(self._origin) or find_or_add_reading(span, shape, self._origin)
        named = reading.remembered_call_names(attributes)
        operation = reading.operation(span, shape) if named is None else named.record.operation
        product = reading.product
        trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_id
        key = (trace_id, span_id) if trace_id is not None and span_id is not None else None
        parent = (trace_id, parent_id) if trace_id is not None and parent_id is not None else None
        call = None
        if operation is None:
            role_of = product.spans.role
            usage_of = None if role_of is None else role_of(span, shape).usage_of
            if usage_of is None:
                self._ignore_span(span, shape, product)
            else:
                self._remember_usage_span(span, shape, usage_of, parent)
        elif key is not None and (known := self._nodes.get(key)) is not None and known.call is not None:
            self._outcome.ignored[DUPLICATE] += 1
            self._outcome.note_dropped_duplicate(
                f"span {span_id}", "repeats an earlier span with the same trace id and span id"
            )
            return
        else:
            call = self._read_call(item_index, span, shape, reading, operation, named)
            if call is not None and not call.record.request_model and call.is_without_call_facts:
                self._ignore_span(span, shape, product)
                call = None
            if call is not None:
                if reading.guesses:
                    call.is_guess = self._has_guesses = True
                if call.is_beside:
                    self._above_siblings.add(parent)
                if call.run_id is not None:
                    self._has_runs = True
                if parent is not None:
                    self._has_inner = True
                self._calls.append((call, parent))
                if key is not None:
                    agent = semconv.first_text(attributes, shape.agent) if shape.agent else None
                    call.agent = agent
                    is_border = call.is_attempt or call.record.operation == "invoke_agent"
                    self._nodes[key] = TraceNode(parent, call.caller, agent, is_border, call)
                return
        if key is None:
            return
        self._has_steps = True
        node = self._nodes[key] = self._build_node(span, shape, product, parent)
        if node.began is not None:
            self._has_streams = True
            self._has_loose_streams |= parent is None

    def _set_current_resource_and_scope(self, resource: Resource, scope: Scope) -> None:
        self._resource, self._scope = resource, scope
        self._origin = span_origin_of_sender(product_of_sender(resource, scope), scope)
        self._senders.set_current_resource(resource)

    def add_calls_of_ended_traces(self, ended: frozenset[str]) -> Iterator[None]:
        """
        Add the calls of finished traces and forget their spans. Nothing happens while too few calls wait.
        """
        self._ended |= ended
        if len(self._calls) < self._enough or self._has_runs or self._has_loose_streams or self._usage_spans:
            return
        everything, rest = self._calls, self._nodes
        whole, self._tree = TraceTree(), TraceTree()
        self._nodes = self._tree.nodes
        for key, node in rest.items():
            (whole.nodes if key[0] in self._ended else self._nodes)[key] = node
        calls: list[tuple[SpanCall, Key | None]] = []
        self._calls = []
        for call, parent in everything:
            is_whole = call.record.trace_id is None or call.record.trace_id in self._ended
            (calls if is_whole else self._calls).append((call, parent))
        self._ended.clear()
        # twice the number of calls, so that the total work stays linear even if many calls wait
        self._enough = max(PART, 2 * len(self._calls))
        yield from self._add_kept_calls(whole, calls)

    def add_items_that_waited(self) -> Iterator[None]:
        if self._usage_spans:
            self._count_usage_spans_as_ignored()
        yield from self._add_kept_calls(self._tree, self._calls)

    def _add_kept_calls(
        self, tree: TraceTree, calls: Sequence[tuple[SpanCall, Key | None]]
    ) -> Iterator[None]:
        if self._has_streams:
            yield from assign_stream_reports_to_start_spans(tree.nodes, calls)
        dropped = (yield from tree.merge_duplicates_and_return_dropped()) if self._has_inner else set()
        if self._has_runs:
            dropped |= _mark_repeated_runs([call for call, _ in calls])
        if self._has_guesses:
            dropped |= _mark_repeated_siblings(calls)
        if self._has_links or (self._has_steps and any(call.has_short_id for call, _ in calls)):
            yield from tree.find_last_attempt_of_each_call()
        clock = TimeSliceClock()
        for number, (call, parent) in enumerate(calls, start=1):
            if number % _TURN == 0 and clock.is_over():
                yield
                clock.begin_slice()
            if call.place in dropped:
                self._outcome.ignored[MERGED] += 1
                if call.repeats is not None:
                    self._outcome.note_dropped_duplicate(
                        f"span {call.record.span_id or 'without an id'}", call.repeats
                    )
            else:
                self._add_call_to_outcome(call, parent, tree)
        if dropped or self._has_steps:
            self._outcome.steps += tree.span_steps_to_store(dropped)

    def _read_span_of_tollhouse(self, index: int, span: Span, attribute_names: AttributeNamesByField) -> bool:
        sender = self._senders
        version = sender.sender_version(span.resource, span.scope)
        return any(
            product.take_span(
                index, span, self._outcome, tags=sender.tags, device=sender.device, version=version
            )
            for product in attribute_names.taken_by
            if product.take_span is not None
        )

    def _read_call(
        self,
        index: int,
        span: Span,
        attribute_names: AttributeNamesByField,
        reading_plan: SpanReadingPlan,
        operation: str,
        named: CallNames | None,
    ) -> SpanCall | None:
        try:
            call = read_call_of_span(index, span, reading_plan, operation, named)
        except values.BadValue as error:
            self._outcome.reject_item(index, error.reason, f"span {index}: {error}")
            return None
        senders, product = self._senders, reading_plan.product
        call.resource_caller = senders.caller
        call.device = senders.device
        call.resource, call.scope = self._resource, self._scope
        user = call.record.user = call.caller.user
        if reading_plan.shape.run:
            call.record.run, call.record.parent_run = run_and_parent_run(span.attributes, reading_plan.shape)
        tags = call.record.tags = senders.tags_of_item(product, user, span.attributes, attribute_names)
        if call.service_tier is not None and semconv.SERVICE_TIER not in tags:
            self._outcome.left_out += not tag_rules.put_tag_if_allowed(
                tags, semconv.SERVICE_TIER, call.service_tier
            )
        for refine in reading_plan.refine:
            refine(span, call)
        if product.is_gateway:
            call.relay_side = AS_GATEWAY
            call.relayed_session = call.relayed_session or call.caller.session
        elif (assistant := ASSISTANTS.get(product.source)) is not None:
            call.relay_side = AS_ASSISTANT
            call.relayed_session = assistant.session_if_sent_to_gateways(span.attributes)
            call.lacks_common_id = not assistant.carriers
            call.program = assistant.program
        if product.zero_cost_is_unknown:
            call.record.cost = cost_unless_placeholder_zero(call.record, call.record.cost)
        response_id, status = call.response_id, call.record.status
        # Client and gateway may share no id of a call that failed, has no id, or has an id that a gateway sealed.
        # A framework around the provider's own span may know no id either.
        if status == "error" or (
            status == "ok" and (response_id is None or is_encrypted_id(response_id) or call.is_of_provider)
        ):
            self._has_links = call.is_linked = True
        if self._outcome.why is not None:
            call.why = origins_of_fields(span, attribute_names, call, product)
        return call

    def _build_node(
        self,
        span: Span,
        attribute_names: AttributeNamesByField,
        product: TelemetryProduct,
        parent: Key | None,
    ) -> TraceNode:
        agent = semconv.first_text(span.attributes, attribute_names.agent) if attribute_names.agent else None
        role = _NO_ROLE if product.spans.role is None else product.spans.role(span, attribute_names)
        # the span states the caller for all calls below, which may be of another product
        caller = stated_caller(span.attributes, attribute_names)
        began = (span.start_time or 0) if role.begins_stream else None
        work = work_tags_of_span(span.attributes, attribute_names) if attribute_names.named_tags else NO_WORK
        is_agents = role.is_agent or is_agent_span(span, attribute_names)
        # a product with run names of its own states the run on each call instead
        is_run = is_agents and RUN not in product.own_names
        if (
            parent is None
            and caller is NO_CALLER
            and agent is None
            and began is None
            and not work
            and not is_run
        ):
            return ROOT
        is_border = is_agents or is_tool_or_agent_span(span, attribute_names)
        ended = span.end_time or 0
        is_ai = is_border or attribute_names.names_ai or attribute_names.has_span_kind
        return TraceNode(
            parent, caller, agent, is_border, None, began, ended=ended, work=work, is_run=is_run, is_ai=is_ai
        )

    def _ignore_span(
        self, span: Span, attribute_names: AttributeNamesByField, product: TelemetryProduct
    ) -> None:
        # Spans of a known product or kind are understood, so they are not unrecognized: they repeat a call or
        # are none.
        is_known = product is not OTEL or attribute_names.has_span_kind or is_of_sdk_naming_each_call(span)
        if product.test_spans and span.name in product.test_spans:
            self._outcome.ignored[TEST_SPAN] += 1
        elif attribute_names.names_ai and (
            not is_known or _is_unknown_operation(span, attribute_names, product)
        ):
            self._ignore_as_unrecognised(span.attributes)
        elif (attribute_names.has_span_kind or attribute_names.names_operation) and _is_guardrail(
            span, attribute_names
        ):
            self._outcome.ignored[GUARD] += 1
        else:
            self._outcome.ignored[NOT_AI] += 1

    def _ignore_as_unrecognised(self, names: Iterable[str]) -> None:
        self._outcome.ignored[UNRECOGNISED_AI] += 1
        self._outcome.note_unrecognised_names(names)

    def _remember_usage_span(
        self, span: Span, attribute_names: AttributeNamesByField, usage_belongs_to: str, parent: Key | None
    ) -> None:
        try:
            output = semconv.first_count(span.attributes, attribute_names.output)
        except values.BadValue:
            output = None
        names = tuple(span.attributes)
        self._usage_spans.append(
            UsageSpan(span.span_id, names, (span.trace_id, parent), output, usage_belongs_to == MODEL_CALL)
        )

    def _count_usage_spans_as_ignored(self) -> None:
        unexplained = set(spans_without_call(self._usage_spans, self._calls))
        for span in self._usage_spans:
            if span in unexplained:
                self._ignore_as_unrecognised(span.names)
            else:
                self._outcome.ignored[MERGED] += 1
                because = "repeats the usage of a sibling call"
                self._outcome.note_dropped_duplicate(f"span {span.span_id or 'without an id'}", because)

    def _add_call_to_outcome(self, call: SpanCall, parent: Key | None, tree: TraceTree) -> None:
        record, caller, link = call.record, call.caller, None
        if call.twin_caller is not NO_CALLER:
            caller = merge_callers(caller, call.twin_caller)
        if parent is not None and parent not in tree.nodes:
            if record.run is None:
                link = parent[1]
        elif parent is not None:
            above = tree.values_from_above(parent)
            caller = merge_callers(caller, above.caller)
            if call.agent is None:
                call.agent = above.agent
            # some libraries state the same name in all calls
            if above.runs and above.agent is not None and "agent" in record.tags:
                tag_rules.put_tag_on_record(record, "agent", above.agent)
            if above.work:
                tags = dict(record.tags)
                for tag, value in above.work.items():
                    if tag not in tags:
                        self._outcome.left_out += not tag_rules.put_tag_if_allowed(tags, tag, value)
                record.tags = tags
            if record.run is None:
                link = above.id_linking_to_runs
                if above.runs:
                    record.run, record.parent_run, record.ancestors = run_parent_and_joined_ancestors(
                        above.runs
                    )
        of_resource = call.resource_caller
        if of_resource is not NO_CALLER:
            caller = merge_callers(caller, of_resource)
        if caller is not NO_CALLER:
            self._outcome.left_out += not fill_caller(record, caller)
        if call.why is not None:
            add_origins_of_caller(call.why, caller)
        if call.agent is not None and "agent" not in record.tags:
            self._outcome.left_out += not tag_rules.put_tag_on_record(record, "agent", call.agent)
        if of_resource.session is not None:
            self._outcome.note_resource_session(record, of_resource.session, device=call.device)
        own = call.own_id
        identity = call_identity(
            record, response_id=call.response_id, shared_id=call.shared_id, span=own is None, own_id=own
        )
        is_linked, chosen = call.is_linked, call.response_id or call.shared_id
        if identity.scope is not None and chosen is not None and call.scope is not None:
            identity, is_linked = with_dedup_keys_of_trace(identity, record, chosen, call.scope.name), True
        stream: tuple[tuple[bytes, bytes], ...] = ()
        if parent is not None or call.reports_stream:
            stream = _dedup_links_of_streamed_answer(call, parent, tree)
        also = call.also
        names_request = call.names_request
        if call.provider_request_id is not None:
            names = dedup_keys_of_request_id(record, call.provider_request_id)
            names_request = bool(names)
            also += tuple([name for name in names if name != identity.id])
        nesting = None
        if call.is_linked or call.is_of_sdk or call.sdk is not None:
            nesting = _nesting_of_call(call, parent, tree)
        relay = None if call.relay_side is None else _relay_of_call(call, states_request_id=names_request)
        if also or call.links or call.joins or is_linked or call.is_logged or relay or stream or nesting:
            links = call.links + (_dedup_links_of_report(call, parent, tree) if is_linked else ()) + stream
            if call.is_logged:
                links += links_by_session_and_end_time(
                    record, own_report_kind=AS_SPAN, other_report_kind=AS_EVENT
                )
            identity = with_dedup_keys_and_links(identity, also, links, call.joins, nesting, relay)
        if call.relay_side == AS_ASSISTANT:
            identity = identity._replace(is_of_assistant=True)
        elif call.relayed_session is not None and record.status == "ok" and call.relay_side == AS_GATEWAY:
            identity = identity._replace(is_final=True)
        if self._above_siblings and parent is not None:
            # siblings find each other by their parent span, even if the parent is in the same request; a call that
            # repeats the call around it is in its place
            around = tree.nodes.get(parent, ROOT)
            repeats = around.call is not None and not around.is_border
            if repeats and around.parent is not None and around.parent in self._above_siblings:
                parent = around.parent
            link = BESIDE + parent[1] if call.is_beside and not call.has_id else parent[1]
        if link is not None and record.span_id is not None:
            identity = with_span_above(identity, link)
        version = self._senders.sender_version(call.resource, call.scope)
        self._outcome.add_record(record, identity, call.why, device=call.device, version=version)


def _dedup_links_of_report(
    call: SpanCall, parent: Key | None, tree: TraceTree
) -> tuple[tuple[bytes, bytes], ...]:
    record = call.record
    if record.trace_id is None or record.span_id is None:
        return ()
    return links_to_server_and_caller(
        record,
        tree.span_that_sent_request(call, (record.trace_id, record.span_id)),
        None if parent is None else tree.enclosing_span_in_other_payload(parent),
        states_request_id=call.provider_request_id is not None,
        has_provider_counts=call.is_of_provider,
    )


def _dedup_links_of_streamed_answer(
    call: SpanCall, parent: Key | None, tree: TraceTree
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links between the two reports of a streamed response, so that they count once: one at the end, in a
    trace of its own, and the call below the span that started the stream.
    """
    if not call.has_usage:
        return ()
    if call.reports_stream:
        return links_between_stream_reports(
            call.record, own_report_kind=AS_STREAM, other_report_kind=BELOW_STREAM
        )
    if parent is None:
        return ()
    above = tree.nodes.get(parent)
    is_below = call.is_of_sdk if above is None else above.began is not None and above.stream is None
    return (
        links_between_stream_reports(call.record, own_report_kind=BELOW_STREAM, other_report_kind=AS_STREAM)
        if is_below
        else ()
    )


def _relay_of_call(call: SpanCall, *, states_request_id: bool) -> RelayedReport | None:
    assert call.relay_side is not None
    return build_relayed_report(
        call.record,
        call.relayed_session,
        report_kind=call.relay_side,
        states_request_id=states_request_id,
        lacks_common_id=call.lacks_common_id,
        other_names=(call.further_model,),
        program=call.program,
    )


def _nesting_of_call(call: SpanCall, parent: Key | None, tree: TraceTree) -> NestedReport | None:
    record = call.record
    sdk = call if call.is_of_sdk else call.sdk
    if sdk is None:
        model = record.request_model or record.response_model
        if model is None or not is_model_of_vendor_sdk(model):
            return None
        ids = (call.response_id, call.shared_id, call.own_id, call.provider_request_id)
        if any(id is not None for id in ids):
            return None
    of_span = sdk or call
    # the provider's API runs in another process than the caller
    is_of_api = call.is_of_provider and sdk is None
    if call.is_nested or is_of_api or of_span.resource is None:
        return None
    process, trace = process_identity(of_span.resource), f"trace {of_span.record.trace_id}"
    places = [process, trace]
    if sdk is not None:
        above = parent if sdk is call else tree.parent_of_call(sdk)
        # a span with a parent is in the trace of the call around it
        places = [process if above is None else trace]
    start, end = of_span.record.start_time, of_span.record.end_time
    return build_nested_report(record, places, start, end, is_inner=sdk is not None)


def _is_unknown_operation(
    span: Span, attribute_names: AttributeNamesByField, product: TelemetryProduct
) -> bool:
    operation = values.text_or_none(span.attributes.get("gen_ai.operation.name"))
    if operation is None and attribute_names.deciding_kind is None:
        return False
    if operation is not None and (operation in semconv.NO_CALLS or operation.endswith("_memory")):
        return False
    if (
        operation in operations.BY_NAME
        or product.spans.operation is no_operation_of_span
        or _is_step_of_known_kind(span, attribute_names)
    ):
        return False
    if (
        has_token_counts(span, attribute_names)
        or semconv.first_value(span.attributes, attribute_names.cost) is not None
    ):
        return True
    return bool(attribute_names.meters) and read_meters(span.attributes, attribute_names) is not None


def _is_guardrail(span: Span, attribute_names: AttributeNamesByField) -> bool:
    stated = [semconv.OPERATION_NAME, *[kind.attribute for kind in attribute_names.kinds]]
    return any("guard" in str(span.attributes.get(name)).lower() for name in stated)


def _is_step_of_known_kind(span: Span, attribute_names: AttributeNamesByField) -> bool:
    kind = attribute_names.deciding_kind
    if kind is None or kind.steps is None:
        return kind is not None
    return str(values.decode_if_json_text(span.attributes.get(kind.attribute))).lower() in kind.steps


def _mark_repeated_siblings(calls: Sequence[tuple[SpanCall, Key | None]]) -> set[int]:
    repeated = find_calls_repeated_by_guesses(calls)
    for call, _ in calls:
        if (sibling := repeated.get(call.place)) is not None:
            span_id = sibling.record.span_id
            call.repeats = f"repeats span {span_id}, because both have the same parent and the same counts"
    return set(repeated)


def _mark_repeated_runs(calls: Iterable[SpanCall]) -> set[int]:
    """
    Return the positions of spans that repeat a run. Of the spans of one run, the one that ends last is kept.
    """
    last: dict[str, SpanCall] = {}
    repeated: set[int] = set()
    for call in calls:
        if call.run_id is None:
            continue
        other_call = last.get(call.run_id)
        if other_call is None:
            last[call.run_id] = call
            continue
        if (call.record.end_time or 0) >= (other_call.record.end_time or 0):
            last[call.run_id] = call
            call, other_call = other_call, call
        repeated.add(call.place)
        call.repeats = (
            f"repeats span {other_call.record.span_id} of the same run, because that span ended last"
        )
    return repeated
