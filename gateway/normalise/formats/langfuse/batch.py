"""
Langfuse's ingestion batch. Its events create and update traces and generations. Only generations are calls.

Events with the same id are merged. Incomplete generations, and the callers of traces, are partial reports.
`merger.py` merges partial reports across batches. Inputs and outputs are never decoded.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from typing import Any

import msgspec

from gateway.core.errors import BadPayload
from gateway.normalise.formats.engine.declaration import CallReport, NormalisedBody, origins_of_known_fields
from gateway.normalise.formats.langfuse.generations import (
    GENERATION,
    ORIGINS,
    TRACE,
    TURN,
    WHOLE,
    Generation,
    Trace,
    build_call_of_generation,
    merge_reports,
    merge_traces_and_count_dropped_tags,
)
from gateway.normalise.outcome import MALFORMED, MERGED, NOT_AI, ReadOptions, ReadOutcome
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import BodyReadLimits, refuse_too_many_items
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.meters import meters_of_buckets
from gateway.normalise.reading.tags import is_credential, remove_unknown_long_tags
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.tokens import (
    Tokens,
    Usage,
    is_token_bucket,
    normalise_counts,
    tokens_of_buckets,
    tokens_of_usage,
)
from gateway.normalise.reading.values import (
    BadValue,
    Other,
    decode_object,
    dict_or_empty,
    is_true,
    parse_amount,
    parse_count,
    struct_or_empty,
    text_or_none,
)
from spool.turns.threads import prepare_types_for_msgspec

_OPENAI = ("prompt_tokens", "completion_tokens", "input_tokens_details", "output_tokens_details")


class NamedUsage(Usage):
    """Usage under the names of Langfuse and of OpenAI."""

    input: Any = None
    output: Any = None
    unit: Any = None
    promptTokens: Any = None
    completionTokens: Any = None
    inputCost: Any = None
    outputCost: Any = None
    totalCost: Any = None


prepare_types_for_msgspec(Usage, NamedUsage)


def tokens_of_details(details: Mapping[str, Any]) -> Tokens | None:
    if any(name in details for name in _OPENAI):
        return _none_if_without_counts(tokens_of_usage(_usage_from_details(details)))
    counts = {name: _count_if_token_usage_type(name, value) for name, value in details.items()}
    buckets = {name: number for name, number in counts.items() if number is not None}
    return _none_if_without_counts(
        normalise_counts(tokens_of_buckets(buckets)._replace(meters=meters_of_buckets(details.items())))
    )


def tokens_of_named_usage(usage: NamedUsage) -> Tokens | None:
    """
    Return the tokens of `usage`, which `usageDetails` replaced in newer versions. Return None if it counts
    nothing, or counts another unit such as characters or seconds.
    """
    if (text_or_none(usage.unit) or "TOKENS").upper() != "TOKENS":
        return None
    own_names = (usage.input, usage.output, usage.promptTokens, usage.completionTokens)
    if all(number is None for number in own_names):
        return _none_if_without_counts(tokens_of_usage(usage))
    return _none_if_without_counts(
        normalise_counts(
            Tokens(
                parse_count(usage.promptTokens if usage.input is None else usage.input, "usage.input"),
                parse_count(usage.completionTokens if usage.output is None else usage.output, "usage.output"),
            )
        )
    )


def cost_of_details(details: Mapping[str, Any]) -> str | None:
    return _stated_total_or_sum(details.get("total"), details.values(), "costDetails")


def cost_of_named_usage(usage: NamedUsage) -> str | None:
    return _stated_total_or_sum(usage.totalCost, (usage.inputCost, usage.outputCost), "usage.totalCost")


def _stated_total_or_sum(total: Any, parts: Iterable[Any], field: str) -> str | None:
    stated = parse_amount(total, field)
    if stated is not None:
        return stated
    costs = [parse_amount(part, field) for part in parts]
    stated_costs = [Decimal(cost) for cost in costs if cost is not None]
    return parse_amount(sum(stated_costs, Decimal(0)), field) if stated_costs else None


def _usage_from_details(details: Mapping[str, Any]) -> Usage:
    try:
        return msgspec.convert(details, Usage)
    except msgspec.ValidationError as error:
        raise BadValue(MALFORMED, "usageDetails is not readable") from error


def _count_if_token_usage_type(name: str, value: Any) -> int | None:
    return (
        parse_count(value, "usageDetails")
        if is_token_bucket(name) and not isinstance(value, dict | list)
        else None
    )


def _none_if_without_counts(tokens: Tokens) -> Tokens | None:
    return tokens if tokens.number_of_known_counts() else None


_CALLS = frozenset({GENERATION, "embedding"})


class _Metadata(msgspec.Struct):
    cache_hit: Any = None


class _Observation(msgspec.Struct):
    id: Any = None
    type: Any = None
    traceId: Any = None
    startTime: Any = None
    endTime: Any = None
    model: Any = None
    usage: NamedUsage | Other = None
    usageDetails: Any = None
    costDetails: Any = None
    level: Any = None
    metadata: _Metadata | Other = None


class _TraceBody(msgspec.Struct):
    id: Any = None
    userId: Any = None
    sessionId: Any = None
    tags: Any = None
    metadata: Any = None


class LangfuseEvent(msgspec.Struct):
    """
    The members of an event that decide how its body is read. The body is not decoded here, so that a large
    event is not copied.
    """

    id: Any = None
    type: Any = None
    timestamp: Any = None


class _ObservationEvent(msgspec.Struct):
    body: _Observation = msgspec.field(default_factory=_Observation)


class _TraceEvent(msgspec.Struct):
    body: _TraceBody = msgspec.field(default_factory=_TraceBody)


def read_langfuse_batch(
    body: bytes, options: ReadOptions, read_limits: BodyReadLimits
) -> Generator[None, None, NormalisedBody]:
    """Read one batch. Raises BadPayload if its envelope cannot be read."""
    batch = _LangfuseBatch(ReadOutcome(why=[] if options.explain else None, keep_tags=options.keep_tags))
    yield from refuse_too_many_items(body, partial(events_in_batches, body), read_limits)
    for item in events_in_batches(body):
        if not len(item):
            yield
            continue
        read_limits.count_items(1, len(item))
        if read_limits.count_work_and_check_turn(len(item)):
            yield
        batch.read_event(item)
    return (yield from batch.finish_batch())


class _LangfuseBatch:
    def __init__(self, outcome: ReadOutcome) -> None:
        self._outcome = outcome
        self._generations: dict[str, Generation] = {}
        self._traces: dict[str, Trace] = {}

    def read_event(self, raw: payload.Raw) -> None:
        index = self._outcome.received
        self._outcome.received += 1
        try:
            is_generation = self._merge_event(raw)
        except payload.UNREADABLE as error:
            if not payload.is_null(raw):
                return self._outcome.reject_item(index, MALFORMED, payload.describe_decoding_error(error))
            is_generation = False
        except BadValue as error:
            return self._outcome.reject_item(index, error.reason, error.message)
        if not is_generation:
            self._outcome.ignored[NOT_AI] += 1
        return None

    def finish_batch(self) -> Generator[None, None, NormalisedBody]:
        """Finish the batch. Incomplete generations and the traces become partial reports."""
        reports = []
        for number, generation in enumerate(self._generations.values(), start=1):
            if number % TURN == 0:
                yield
            kind = WHOLE if self._add_call_if_complete(generation) else GENERATION
            reports.append(CallReport(kind, generation.id, msgspec.msgpack.encode(generation)))
        for number, trace in enumerate(self._traces.values(), start=1):
            if number % TURN == 0:
                yield
            if trace != Trace(trace.id):  # a trace that has only an id names no caller, so it is not reported
                reports.append(CallReport(TRACE, trace.id, msgspec.msgpack.encode(trace)))
        return NormalisedBody(self._outcome, reports)

    def _add_call_if_complete(self, generation: Generation) -> bool:
        if not generation.is_complete_for_record:
            return False
        call = build_call_of_generation(generation, self._traces.get(generation.trace_id or ""))
        if call is None:
            return False
        why = None if self._outcome.why is None else origins_of_known_fields(ORIGINS, call.record)
        self._outcome.add_record(call.record, call.identity, why)
        return True

    def _merge_event(self, raw: payload.Raw) -> bool:
        """
        Merge the facts of an event with earlier events on the same id. Return whether the event is about a
        generation.
        """
        event = decode_object(raw, LangfuseEvent)
        kind, _, verb = (text_or_none(event.type) or "").rpartition("-")
        if kind == TRACE:
            self._merge_trace(decode_object(raw, _TraceEvent).body)
        if kind not in _CALLS and kind != "observation":
            return False
        observed = decode_object(raw, _ObservationEvent).body
        if kind == "observation" and (text_or_none(observed.type) or "").lower() not in _CALLS:
            return False
        own_id = text_or_none(observed.id)
        if own_id is None:
            raise BadValue(MALFORMED, "body.id is missing")
        generation = _generation_of_observation(
            own_id, observed, at=parse_instant(event.timestamp), created=verb == "create"
        )
        if own_id in self._generations:
            self._generations[own_id] = merge_reports(self._generations[own_id], generation)
            self._outcome.ignored[MERGED] += 1
            self._outcome.note_dropped_duplicate(
                f"event {self._outcome.received - 1}", "adds to the generation of an earlier event"
            )
        else:
            self._generations[own_id] = generation
        return True

    def _merge_trace(self, body: _TraceBody) -> None:
        own_id = text_or_none(body.id)
        if own_id is None:
            return
        metadata = CallMetadata()
        metadata.add_labels_as_tags(body.tags if isinstance(body.tags, list) else ())
        metadata.add_caller_and_tags(dict_or_empty(body.metadata))
        metadata.left_out += remove_unknown_long_tags(metadata.tags, self._outcome.keep_tags)
        user = text_or_none(body.userId) or metadata.user
        if is_credential(user):
            user = None
            metadata.left_out += 1
        trace = Trace(
            own_id,
            user=user,
            team=metadata.team,
            session=text_or_none(body.sessionId) or metadata.session,
            tags=metadata.tags,
        )
        self._traces[own_id], left_out = merge_traces_and_count_dropped_tags(
            self._traces.get(own_id) or Trace(own_id), trace
        )
        self._outcome.left_out += metadata.left_out + left_out


def events_in_batches(body: bytes) -> Iterator[payload.Raw]:
    """
    Return the undecoded events of the body's batches. Raises BadPayload if the body is unreadable, or if it
    is one object that is not a batch.
    """
    documents = payload.items_of_body(body)
    first = list(islice(documents, 2))
    is_alone = len(first) == 1 and body.lstrip()[:1] != b"["
    for document in chain(first, documents):
        if not len(document):
            yield document
            continue
        members = payload.undecoded_members(document)
        if "batch" in members and payload.first_byte(members["batch"]) == b"[":
            yield from payload.array_elements_of_member(document, "batch")
        elif is_alone and not {"type", "body"} <= members.keys():
            raise BadPayload("the body has no batch of events")
        else:  # the document is a single event, or an item that is not an event
            yield document


def _generation_of_observation(
    own_id: str, observed: _Observation, *, at: int | None, created: bool
) -> Generation:
    usage = struct_or_empty(observed.usage, NamedUsage)
    costs = dict_or_empty(observed.costDetails)
    cache_hit = struct_or_empty(observed.metadata, _Metadata).cache_hit
    return Generation(
        id=own_id,
        at=at,
        trace_id=text_or_none(observed.traceId),
        start_time=parse_instant(observed.startTime),
        end_time=parse_instant(observed.endTime),
        model=text_or_none(observed.model),
        details=tokens_of_details(dict_or_empty(observed.usageDetails)),
        usage=tokens_of_named_usage(usage),
        details_cost=cost_of_details(costs),
        usage_cost=cost_of_named_usage(usage),
        level=text_or_none(observed.level),
        cached=None if cache_hit is None else is_true(cache_hit),
        created=created,
    )
