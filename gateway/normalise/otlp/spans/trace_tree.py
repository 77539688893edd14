"""
The spans of one payload as trees: values that a span inherits, and spans that describe the same call.

Each span is a light node without knowledge of dialects. All walks are loops instead of recursion, because a
chain of spans may be as long as the payload.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from gateway.normalise.otlp.call import NO_CALLER, Caller, SpanCall, merge_callers
from gateway.normalise.otlp.semconv import SERVICE_TIER
from gateway.normalise.otlp.spans.calls import merge_token_counts_of_reports, sum_token_counts
from gateway.normalise.reading import tags
from spool.caches import cache_by_text
from spool.identity import dedup_key_of_span
from spool.log.pending_spans import LONGEST_GIVEN, MOST_RUNS, PLAIN, RUN, STEP, GivenValues, SpanStep

TURN = 256  # nodes processed before the event loop gets a turn
CLOSE = 8  # maximum levels between a call and the span of its HTTP request
_MOST_NAMED = 3  # maximum calls named in the reason for dropping a span
_MOST_NAMES = 8  # maximum dedup keys that a call gets from dropped spans

Key = tuple[str, str]  # key of a span: trace id and span id


NO_WORK: Mapping[str, str] = MappingProxyType({})


class InheritedValues(NamedTuple):
    """The values that a span inherits, each from the nearest enclosing span that has it."""

    caller: Caller = NO_CALLER
    agent: str | None = None
    calls: tuple[SpanCall | None, SpanCall | None, SpanCall | None] = (None, None, None)
    work: Mapping[str, str] = NO_WORK
    runs: tuple[str, ...] = ()  # runs of agents around the span, the nearest first
    missing: str | None = None  # id of the nearest enclosing span that is in another payload

    @property
    def id_linking_to_runs(self) -> str | None:
        """
        Return the id of the span that links this span to its agent runs: the nearest run, or else the first
        span above that the payload lacks.
        """
        return self.runs[0] if self.runs else self.missing


NOTHING = InheritedValues()


class TraceNode(Struct, gc=False):
    parent: Key | None
    caller: Caller
    agent: str | None
    is_border: bool  # whether the span is a tool or an agent, below which calls are separate
    call: SpanCall | None
    began: int | None = None  # start time, only of a span that started a stream
    stream: SpanCall | None = None  # the span that reports the result of the stream
    ended: int = 0  # end time, only of spans that are not calls
    work: Mapping[str, str] = NO_WORK  # tags of the work, only of spans that are not calls
    is_run: bool = False  # whether the span is an agent's, which is the run of the calls below it
    is_ai: bool = False  # whether a span that is not a call has a sign of AI
    below: InheritedValues | None = None  # values that the spans below inherit, cached


# Stands for all spans from which the spans below inherit nothing.
ROOT = TraceNode(None, NO_CALLER, None, False, None)


class TraceTree:
    """
    The spans of one payload by their trace and span ids. All spans must be in `nodes` before the first query.
    """

    def __init__(self) -> None:
        self.nodes: dict[Key, TraceNode] = {}
        self._outside: dict[Key, Key | None] = {}  # cache of `enclosing_span_in_other_payload`
        # index of a call -> end and key of the last span below it
        self._last_below: dict[int, tuple[int, Key]] = {}

    def values_from_above(self, parent: Key | None) -> InheritedValues:
        if parent is None:
            return NOTHING
        if (node := self.nodes.get(parent)) is None:
            return InheritedValues(missing=parent[1])
        chain: list[tuple[Key, TraceNode]] = []
        seen: set[int] = set()
        key: Key | None = parent
        # stop at a span that was seen, because the parents of spans may form a cycle
        while key is not None and node is not None and node.below is None and id(node) not in seen:
            chain.append((key, node))
            seen.add(id(node))
            key = node.parent
            node = self.nodes.get(key) if key is not None else None
        above = NOTHING
        if node is None and key is not None:
            above = InheritedValues(missing=key[1])
        elif node is not None and node.below is not None:
            above = node.below
        for (_, span_id), node in reversed(chain):
            above = node.below = _with_values_of_node(node, above, span_id)
        return above

    def span_steps_to_store(self, dropped_indexes: Set[int]) -> Iterator[SpanStep]:
        nodes = self.nodes.items()
        with_ai = {trace for (trace, _), node in nodes if node.is_ai or node.is_run or node.call is not None}
        for (trace, span), node in nodes:
            parent = node.parent
            if trace not in with_ai:
                given = None if node is ROOT else _values_given_to_inner_spans(node)
                yield trace, span, None if parent is None else parent[1], PLAIN, given
            elif node.is_run:
                link = self.values_from_above(parent).id_linking_to_runs
                yield trace, span, link, RUN, self._values_missing_at_link(trace, span, link)
            elif node.call is None or node.call.place in dropped_indexes:
                link = self.values_from_above(parent).id_linking_to_runs
                given = None if node is ROOT else self._values_missing_at_link(trace, span, link)
                is_linked = (link or given) is not None and (node.is_ai or node.call is not None)
                yield trace, span, link, STEP if is_linked else PLAIN, given

    def _values_missing_at_link(self, trace: str, span: str, link: str | None) -> GivenValues | None:
        above = self.values_from_above((trace, span))
        if (
            link is not None
            and (linked := self.nodes.get((trace, link))) is not None
            and linked.below is above
        ):
            return None
        return _values_given_to_inner_spans(above)

    def enclosing_span_in_other_payload(self, parent: Key | None) -> Key | None:
        """
        Return the nearest enclosing span that is in another payload. Return None if there is none, or if a
        tool or agent is in between.
        """
        chain: list[Key] = []
        top = parent
        while top is not None and (node := self.nodes.get(top, ROOT)) is not ROOT:
            # each span of the current chain is stored first, with None, so a cycle ends here
            if top in self._outside:
                top = self._outside[top]
                break
            self._outside[top] = None
            chain.append(top)
            top = None if node.is_border else node.parent
        self._outside.update(dict.fromkeys(chain, top))
        return top

    def find_last_attempt_of_each_call(self) -> Iterator[None]:
        """
        Find the last attempt of each call, for `span_that_sent_request`. Attempts are spans without children,
        at most CLOSE levels below the call, that are no calls. The last one ends last. Yields so that the
        event loop can run.
        """
        parents = {node.parent for node in self.nodes.values()}
        for number, (key, node) in enumerate(self.nodes.items(), start=1):
            if number % TURN == 0:
                yield
            if node.call is not None or node.is_border or key in parents:
                continue
            above = node.parent
            for _ in range(CLOSE):
                if above is None or (outer := self.nodes.get(above)) is None or outer.is_border:
                    break
                if (call := outer.call) is not None:
                    if (node.ended, key) > self._last_below.get(call.place, (0, key)):
                        self._last_below[call.place] = node.ended, key
                    break
                above = outer.parent

    def span_that_sent_request(self, call: SpanCall, own_span_key: Key) -> Key:
        """
        Return the span that sent the request: the last attempt below the call, or the call's own span
        (`own_span_key`).
        """
        last_below = self._last_below.get(call.place)
        return own_span_key if last_below is None else last_below[1]

    def parent_of_call(self, call: SpanCall) -> Key | None:
        record = call.record
        if record.trace_id is None or record.span_id is None:
            return None
        node = self.nodes.get((record.trace_id, record.span_id))
        return None if node is None else node.parent

    def merge_duplicates_and_return_dropped(self) -> Generator[None, None, set[int]]:
        """
        Choose between calls that describe the same call, and merge their values. Return the positions of the
        dropped calls. Yields so that the event loop can run.
        """
        enclosing: list[SpanCall] = []
        enclosed: set[int] = set()
        for number, node in enumerate(self.nodes.values(), start=1):
            if number % TURN == 0:
                yield
            call = node.call
            if call is None or node.parent is None or node.is_border:
                continue
            outer = self.values_from_above(node.parent).calls[call.kind]
            if outer is not None and outer is not call:
                if outer.inner is None:
                    outer.inner = []
                    enclosing.append(outer)
                outer.inner.append(call)
                enclosed.add(call.place)
        dropped: set[int] = set()
        for number, outer in enumerate(enclosing, start=1):
            if number % TURN == 0:
                yield
            if outer.place not in enclosed:
                _choose_nested_calls_and_add_dropped(outer, dropped)
        for outer in enclosing:
            outer.inner = None
        return dropped


def _with_values_of_node(node: TraceNode, above: InheritedValues, span_id: str) -> InheritedValues:
    calls = above.calls
    if node.is_border:
        calls = NOTHING.calls
    elif (call := node.call or node.stream) is not None:
        a, b, c = calls
        kind = call.kind
        calls = (call if kind == 0 else a, call if kind == 1 else b, call if kind == 2 else c)
    elif node.caller is NO_CALLER and node.agent is None and not node.work:
        return above
    work = {**above.work, **node.work} if node.work else above.work
    runs = (span_id, *above.runs[: MOST_RUNS - 1]) if node.is_run else above.runs
    agent = node.agent or above.agent
    return InheritedValues(merge_callers(node.caller, above.caller), agent, calls, work, runs, above.missing)


def _values_given_to_inner_spans(source: TraceNode | InheritedValues) -> GivenValues | None:
    caller, agent, work = source.caller, source.agent, source.work
    if caller is NO_CALLER and agent is None and not work:
        return None
    values = (caller.user, caller.team, caller.session, caller.api_key)
    given_tags = tuple(work.items())
    if agent is not None and "agent" not in work:
        given_tags += _tag_of_agent_name(agent)
    size = sum(map(len, filter(None, (*values, *[value for _, value in given_tags]))))
    return GivenValues(*values, tags=given_tags) if size <= LONGEST_GIVEN else None


@cache_by_text(1024)
def _tag_of_agent_name(agent: str) -> tuple[tuple[str, str], ...]:
    given_tags: dict[str, str] = {}
    tags.put_tag_if_allowed(given_tags, "agent", agent)
    return tuple(given_tags.items())


class KeptCalls(NamedTuple):
    """
    The calls below one span that are kept, because they repeat no other call. `counted` are those of them
    with usage.
    """

    kept: list[SpanCall]
    counted: list[SpanCall]


def _choose_nested_calls_and_add_dropped(outermost: SpanCall, dropped_indexes: set[int]) -> None:
    """
    Decide which of several nested calls are kept, and add the positions of the other calls to `dropped_indexes`.

    The innermost calls with usage are kept. If no inner call has usage, an outer call with usage is kept,
    together with inner calls that failed. A failed outer call is kept if the inner calls report neither a
    failure nor a response. Otherwise the inner calls are kept. If all inner calls are marked as parts of the
    outer call (`is_part`), the outer call is kept instead of them.

    A kept call takes missing values (identity, cost, model, provider, id, service tier) from spans that were
    dropped as its duplicates. It also takes their token counts if these are fuller. If an outer span encloses
    several kept calls, its values belong to no single call, so no call takes them.
    """
    below: dict[int, KeptCalls] = {}  # index of a subtree's root -> calls of the subtree that are kept
    for call in _innermost_calls_first(outermost):
        calls, counted = _join_branches(below.pop(inner.place) for inner in call.inner or ())
        if calls and not call.is_part and all(inner.is_part for inner in calls):
            _merge_parts_into_call_and_drop(call, calls, counted, dropped_indexes)
            below[call.place] = KeptCalls([call], [call] if call.has_usage else [])
        elif call.has_usage and not counted:
            failed = [inner for inner in calls if inner.record.status == "error"]
            answered_calls = [inner for inner in calls if inner.record.status != "error"]
            for inner in answered_calls:
                dropped_indexes.add(inner.place)
                if inner.why is not None:
                    inner.repeats = (
                        f"repeats the enclosing span {_span_id_text(call)}, because only that span has tokens"
                    )
                _merge_duplicate_into_kept(call, inner)
                call.is_nested |= inner.is_of_sdk
            if len(answered_calls) == 1:
                _copy_missing_ids_of_duplicate(call, answered_calls[0])
            below[call.place] = KeptCalls([call, *failed], [call])
        elif calls and call.record.status == "error" and all(map(_is_without_answer, calls)):
            for inner in calls:
                dropped_indexes.add(inner.place)
                if inner.why is not None:
                    reason = "it does not report that span's failure"
                    inner.repeats = f"repeats the enclosing span {_span_id_text(call)}, because {reason}"
                _merge_duplicate_into_kept(call, inner)
                call.is_nested |= inner.is_of_sdk
            below[call.place] = KeptCalls([call], [])
        elif calls:
            dropped_indexes.add(call.place)
            if call.why is not None:
                call.repeats = _reason_for_dropped_enclosing(call, counted or calls)
            if len(counted or calls) == 1:
                [kept_call] = counted or calls
                _merge_duplicate_into_kept(kept_call, call)
                _copy_missing_ids_of_duplicate(kept_call, call)
                if call.is_of_sdk:
                    kept_call.sdk = call
                elif kept_call.is_of_sdk or kept_call.sdk is not None:
                    kept_call.is_nested = True
            below[call.place] = KeptCalls(calls, counted)
        else:
            below[call.place] = KeptCalls([call], [])


def _merge_parts_into_call_and_drop(
    call: SpanCall, parts: Sequence[SpanCall], counted: Sequence[SpanCall], dropped_indexes: set[int]
) -> None:
    if counted and not call.has_usage:
        call.replace_counts(sum_token_counts([part.tokens for part in counted]))
        _copy_explanations_of_duplicate(call, counted[0], "tokens")
    for part in parts:
        dropped_indexes.add(part.place)
        if part.why is not None:
            part.repeats = f"is a part of the enclosing span {_span_id_text(call)}"
        if len(parts) == 1:
            _merge_duplicate_into_kept(call, part)
            _copy_missing_ids_of_duplicate(call, part)


def _is_without_answer(call: SpanCall) -> bool:
    return call.record.status == "ok" and not call.has_usage and call.record.request_id is None


def _reason_for_dropped_enclosing(call: SpanCall, inner_calls: list[SpanCall]) -> str:
    call_names = ", ".join(_span_id_text(inner) for inner in inner_calls[:_MOST_NAMED]) + (
        ", ..." if len(inner_calls) > _MOST_NAMED else ""
    )
    if inner_calls[0].has_usage:
        return f"repeats the enclosed span {call_names}, because the innermost call with tokens counts"
    return f"repeats the enclosed span {call_names}, because neither has tokens"


def _span_id_text(call: SpanCall) -> str:
    return call.record.span_id or "without an id"


def _innermost_calls_first(outermost: SpanCall) -> list[SpanCall]:
    order: list[SpanCall] = []
    waiting = [outermost]
    while waiting:
        call = waiting.pop()
        order.append(call)
        waiting += call.inner or ()
    order.reverse()
    return order


def _join_branches(branches: Iterable[KeptCalls]) -> KeptCalls:
    kept_calls: list[SpanCall] = []
    counted: list[SpanCall] = []
    for branch in branches:  # extend the longer list, so that long chains of spans cost little
        kept_calls = _extend_longer_list(kept_calls, branch.kept)
        counted = _extend_longer_list(counted, branch.counted)
    return KeptCalls(kept_calls, counted)


def _extend_longer_list(first: list[SpanCall], second: list[SpanCall]) -> list[SpanCall]:
    if len(second) > len(first):
        first, second = second, first
    first += second
    return first


def _merge_duplicate_into_kept(kept_call: SpanCall, duplicate: SpanCall) -> None:
    # Events of the call have the ids of the enclosing span, and may have no other id.
    if (
        duplicate.record.trace_id is not None
        and duplicate.record.span_id is not None
        and len(kept_call.also) < _MOST_NAMES
    ):
        kept_call.also += (
            dedup_key_of_span(duplicate.record.trace_id, duplicate.record.span_id),
            *duplicate.also,
        )
    if kept_call.record.cost is None and not kept_call.record.charges:
        kept_call.record.cost, kept_call.record.charges = duplicate.record.cost, duplicate.record.charges
        if kept_call.record.cost is not None or kept_call.record.charges:
            _copy_explanations_of_duplicate(
                kept_call, duplicate, "charges" if kept_call.record.charges else "cost"
            )
    if kept_call.record.request_model is None and kept_call.record.response_model is None:
        kept_call.record.request_model = duplicate.record.request_model
        kept_call.record.response_model = duplicate.record.response_model
        _copy_explanations_of_duplicate(kept_call, duplicate, "model")
    if kept_call.record.provider is None and duplicate.record.provider is not None:
        kept_call.record.provider = duplicate.record.provider
        _copy_explanations_of_duplicate(kept_call, duplicate, "provider")
    if kept_call.record.region is None and duplicate.record.region is not None:
        kept_call.record.region = duplicate.record.region
        _copy_explanations_of_duplicate(kept_call, duplicate, "region")
    if (tier := duplicate.record.tags.get(SERVICE_TIER)) is not None:
        tags.put_tag_on_record(kept_call.record, SERVICE_TIER, kept_call.record.tags.get(SERVICE_TIER, tier))
    if (
        kept_call.has_usage
        and (tokens := merge_token_counts_of_reports(kept_call.tokens, duplicate.tokens)) != kept_call.tokens
    ):
        kept_call.replace_counts(tokens)
        _copy_explanations_of_duplicate(kept_call, duplicate, "tokens")
    kept_call.twin_caller = merge_callers(
        kept_call.twin_caller, merge_callers(duplicate.caller, duplicate.twin_caller)
    )
    kept_call.agent = kept_call.agent or duplicate.agent


def _copy_missing_ids_of_duplicate(kept_call: SpanCall, duplicate: SpanCall) -> None:
    """
    Copy missing ids from a duplicate span to the kept call. If only one of the two spans failed, nothing is
    copied, because the ids may belong to another call.
    """
    if kept_call.record.status != duplicate.record.status:
        return
    if kept_call.provider_request_id is None:
        kept_call.provider_request_id = duplicate.provider_request_id
    stated = duplicate.record.request_id
    if stated is not None and kept_call.record.request_id is None:
        kept_call.record.request_id = stated
        kept_call.response_id, kept_call.shared_id = duplicate.response_id, duplicate.shared_id
        _copy_explanations_of_duplicate(kept_call, duplicate, "request_id")


def _copy_explanations_of_duplicate(kept_call: SpanCall, duplicate: SpanCall, field_name_ending: str) -> None:
    if kept_call.why is not None and duplicate.why is not None:
        twin_reasons = {
            field: why for field, why in duplicate.why.items() if field.endswith(field_name_ending)
        }
        kept_call.why |= {
            field: f"{why}, from a dropped duplicate span" for field, why in twin_reasons.items()
        }


# --- Sibling spans (under the same parent) ------------------------------------------------------------------

MODEL_CALL = "model_call"  # `usage_of` of a span that repeats a sibling's model usage

SpanPlace = tuple[str | None, Key | None]  # place of a span: trace id, and key of its parent span
_PlaceAndOutput = tuple[SpanPlace, int | None]


class UsageSpan(NamedTuple):
    """
    A span that repeats the usage of a sibling call under the same parent. The span itself is not counted.

    If there is no such call, the span is shown to the operator.
    """

    span_id: str | None
    names: tuple[str, ...]  # names of the span's attributes
    place: SpanPlace
    output: int | None
    is_of_call: bool  # whether the span repeats the usage of a call to a model


def find_calls_repeated_by_guesses(calls: Sequence[tuple[SpanCall, Key | None]]) -> dict[int, SpanCall]:
    """
    Return the calls whose usage a guessed call repeats, by the position of the guessed call. A guessed call
    names neither an operation nor a kind. The call it repeats is a sibling that has the same usage and names
    at least one of them.
    """
    siblings = _calls_by_parent_and_output(calls)
    repeated_by_place: dict[int, SpanCall] = {}
    for call, parent in calls:
        if call.is_guess and call.has_usage:
            beside = siblings.get(((call.record.trace_id, parent), call.tokens.output), ())
            repeated = next(
                (candidate for candidate in beside if _has_guess_same_input_and_model(call, candidate)), None
            )
            if repeated is not None:
                repeated_by_place[call.place] = repeated
    return repeated_by_place


def spans_without_call(
    spans: Iterable[UsageSpan], calls: Sequence[tuple[SpanCall, Key | None]]
) -> list[UsageSpan]:
    siblings = _calls_by_parent_and_output(calls)
    return [span for span in spans if not (span.is_of_call and (span.place, span.output) in siblings)]


def _calls_by_parent_and_output(
    calls: Sequence[tuple[SpanCall, Key | None]],
) -> Mapping[_PlaceAndOutput, list[SpanCall]]:
    calls_by_place: dict[_PlaceAndOutput, list[SpanCall]] = {}
    for call, parent in calls:
        if not call.is_guess and call.has_usage:
            calls_by_place.setdefault(((call.record.trace_id, parent), call.tokens.output), []).append(call)
    return calls_by_place


def _has_guess_same_input_and_model(guess: SpanCall, call: SpanCall) -> bool:
    cache = (call.tokens.cache_read or 0) + (call.tokens.cache_write or 0)
    inputs = (call.tokens.input, (call.tokens.input or 0) - cache)
    return guess.tokens.input in inputs and not _folded_model_names(guess).isdisjoint(
        _folded_model_names(call)
    )


def _folded_model_names(call: SpanCall) -> set[str]:
    models = (call.record.request_model, call.record.response_model)
    return {model.rpartition("/")[2].lower() for model in models if model is not None}


# --- Streams ------------------------------------------------------------------------------------------------

# what a repeated usage has in common: model, input and output
_Counts = tuple[str | None, int | None, int | None]


def assign_stream_reports_to_start_spans(
    nodes: Mapping[Key, TraceNode], calls: Sequence[tuple[SpanCall, Key | None]]
) -> Iterator[None]:
    """
    Assign each span that reports the result of a streamed call to the span that started the stream. Then the
    tree treats the report as the call that encloses the spans below the start.

    Spans under the same parent are matched in the order of their start times. If the numbers of starts and
    reports differ, none is matched. A report without a parent is a trace of its own, and is matched by its
    model and counts.
    """
    begun: dict[SpanPlace, list[TraceNode]] = {}
    for number, ((trace_id, _), node) in enumerate(nodes.items(), start=1):
        if number % TURN == 0:
            yield
        if node.began is not None:
            begun.setdefault((trace_id, node.parent), []).append(node)
    if not begun:
        return
    reported: dict[SpanPlace, list[SpanCall]] = {}
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
    yield from _assign_reports_by_counts(nodes, calls, joined)


def _assign_reports_by_counts(
    nodes: Mapping[Key, TraceNode], calls: Sequence[tuple[SpanCall, Key | None]], joined: set[int]
) -> Iterator[None]:
    """
    Match reports of streams without a parent span with calls of started streams that have the same model and
    counts. If several streams have these counts, none is matched.
    """
    repeated: dict[Key, SpanCall] = {}
    loose: dict[_Counts, list[SpanCall]] = {}
    for number, (call, parent) in enumerate(calls, start=1):
        if number % TURN == 0:
            yield
        if not call.has_usage:
            continue
        if parent is None:
            if call.reports_stream and call.place not in joined:
                loose.setdefault(_model_and_counts(call), []).append(call)
        elif (node := nodes.get(parent)) is not None and _is_stream_start_without_report(node):
            repeated[parent] = call
    for number, (key, call) in enumerate(repeated.items(), start=1):
        if number % TURN == 0:
            yield
        if reports := loose.get(_model_and_counts(call)):
            nodes[key].stream = reports.pop()


def _is_stream_start_without_report(node: TraceNode) -> bool:
    return node.began is not None and node.parent is None and node.stream is None


def _model_and_counts(call: SpanCall) -> _Counts:
    return call.record.request_model, call.tokens.input, call.tokens.output
