"""
Dedup keys: 128-bit hashes, equal in every installation, by which reports of the same call are recognized.
Pure.

The first of seven rules that applies makes the key: 1. an id of another Tollhouse, 2. the provider's long
response id, 3. a short or shared id with facts that distinguish calls, 4. the span, 5. the source's own id,
6. the session with its start, 7. the data point or event.

Dialects and formats decide which fields are such ids; this module names no source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from spool.record import NS, Inference

_PREFIX = re.compile(r"[A-Za-z]+[-_]")
# Copying a prepared hash takes half the time.
_HASHES = {rule: blake2b(digest_size=16, person=b"tollhouse-%d" % rule) for rule in range(1, 12)}
STAND_IN = b"tollhouse-span"
# characters after the prefix; a shorter id may be a local server's counter
LONG_ENOUGH = 16
STEP_NS = 4 * NS
CHECK_ID = (
    # the id of the test call of `tollhouse check`, which is not hashed and never stored
    b"tollhouse check."
)
AS_SPAN, AS_EVENT = "span", "event"  # the two kinds of reports of a call
AS_STREAM, BELOW_STREAM = "stream", "below stream"
AS_ASSISTANT, AS_GATEWAY = "assistant", "gateway"  # the program that calls a gateway, and the gateway
AS_CALL, AS_COUNT = "call", "count"  # reports of a response, and events that count its tokens
ANY_SCOPE = "any scope"
SEALED = 96  # characters of providers' ids. A gateway sealed (encrypted) a longer one.
# A span id, a UUID, 128 bits in hexadecimal, a ULID, or a prefix with a long random part. Other ids may be
# unique only within a session.
_UNIQUE = re.compile(
    "[0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9A-HJKMNP-TV-Z]{26}"
    "|[a-z]{2,8}_[0-9A-Za-z]{20,64}",
    re.ASCII,
)
_INNER, _OUTER = "inner", "outer"
_ANY_FAILURE = "\0any failure"  # ends the key of a failure that states no session
# begins a key of nested reports made from the service name, which several machines may share
OF_SERVICE = "service "


class NestedReport(NamedTuple):
    """
    One of two reports of a call from the same process (an SDK and the code that calls it) that have no common
    id.

    The inner report is the SDK's, the outer one its caller's. `keys`: by process or trace, outcome and token
    counts. An inner report has several keys, because the outer report may leave cached tokens out of its
    input. `start` and `end` (nanoseconds) are this report's times; the record of the call may have others.
    """

    is_inner: bool
    keys: tuple[str, ...]
    start: int
    end: int


class RelayedReport(NamedTuple):
    """
    One of two reports of a call, by a coding assistant and by its gateway, that have no common id.

    `keys`: texts of which both reports share one, made from the session that the assistant sends to the
    gateway, or from the model, with the outcome and the token counts. `start` may be unknown.
    `names_request`: the report states the provider's request id. If both reports state one, only equal ids
    match.
    """

    side: str
    keys: tuple[str, ...]
    start: int | None
    end: int
    names_request: bool = False


class RecordIdentity(NamedTuple):
    """
    The dedup key of a record (`id`), with further dedup ids of the call (names).

    If not `certain`, the record is never a duplicate. `lookups`: other ids under which the call may be
    recorded. `also`: names by which reports without the id find the call; they are looked up and remembered.

    `links` match reports from two sides, such as caller and server, that each report a call once. A link is
    this side's name, which is remembered, and the other side's. The report belongs to the call recorded under
    the other side's name, unless this side already reported that call. A name that has several links, such as
    times of two clocks, matches only one call.

    `joins`: names of an open record that may contain only the end of this call. This report is merged into
    that record. If the call is reported again later, the later report's record gets the facts of the merged
    one.

    `is_final`: the seller's cost, which replaces another cost of the same key and an assistant's estimate.
    `is_of_assistant`: the report of a program that may call through a gateway. Its cost was computed without
    the seller's price, and its model is the one that it asked for, so those of any other report replace them.
    `nesting` and `relay`: match a report without a common id. `above`: span of the nearest agent, or the first
    missing span.

    `scope`: the instrumentation scope of a span whose own ids identify the call because its other id is short
    or shared; "" if unknown. A record has at most one such span per scope.
    """

    id: bytes
    lookups: tuple[bytes, ...] = ()
    certain: bool = True
    also: tuple[bytes, ...] = ()
    links: tuple[tuple[bytes, bytes], ...] = ()
    joins: tuple[bytes, ...] = ()
    is_final: bool = False
    is_of_assistant: bool = False
    nesting: NestedReport | None = None
    relay: RelayedReport | None = None
    above: str | None = None
    scope: str | None = None

    @property
    def keys_to_remember(self) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys((*self.also, *[own for own, _ in self.links], *self.joins)))


class RequestDedupKeys(NamedTuple):
    """
    The dedup ids of a request with an idempotency key: one of the key, and one of the key with the body.
    """

    key: bytes
    body: bytes


def dedup_key_of_parts(rule_number: int, *parts: object) -> bytes:
    text = (
        "\0".join(["" if part is None else str(part) for part in parts]) if len(parts) > 1 else str(parts[0])
    )
    hash = _HASHES[rule_number].copy()
    hash.update(text.encode("utf-8", "surrogatepass"))
    return hash.digest()


def _dedup_key_of_text(dedup_rule_number: int, text: str) -> bytes:
    """
    Return the dedup key by a rule of this module for one text. It is separate because most calls hash one
    text, and joining parts would double the time.
    """
    hash = _HASHES[dedup_rule_number].copy()
    hash.update(text.encode("utf-8", "surrogatepass"))
    return hash.digest()


# begin of the dedup keys of short span ids, by which log records find spans
_SPAN = dedup_key_of_parts(3, "span")[:4]
# the dedup keys of `encode_times_as_dedup_key`, by `is_inner`
_TIMES = {is_inner: dedup_key_of_parts(3, is_inner, "times")[:4] for is_inner in (False, True)}


def is_long_id(response_id: str) -> bool:
    """
    Return whether the id, without its prefix (`chatcmpl-`, `msg_`, ...), is long enough to be unique
    everywhere.
    """
    before = response_id[:-LONG_ENOUGH]
    # a shortcut: nearly every long id has a separator before its last LONG_ENOUGH characters
    if "-" in before or "_" in before:
        return True
    prefix = _PREFIX.match(response_id)
    return len(response_id) - (prefix.end() if prefix else 0) >= LONG_ENOUGH


def has_unique_id_form(id: str) -> bool:
    """Return whether the id of a session or run has a form that is unique everywhere, such as a UUID."""
    return _UNIQUE.fullmatch(id) is not None


def is_encrypted_id(response_id: str | None) -> bool:
    """
    Return whether the gateway encrypted (sealed) the id. Each reader of the response then gets another id.
    """
    return response_id is not None and len(response_id) > SEALED


def request_id_type_prefix(record: Inference) -> str | None:
    """
    Return the prefix of the record's long id, such as `msg_` or `req_`. An id that a gateway encrypted has
    none, because it identifies no call.
    """
    id = record.request_id
    prefix = None if id is None or is_encrypted_id(id) or not is_long_id(id) else _PREFIX.match(id)
    return None if prefix is None else prefix[0]


def call_identity(
    record: Inference,
    *,
    response_id: str | None = None,
    shared_id: str | None = None,
    span: bool = False,
    own_id: str | None = None,
    sequence: object = None,
) -> RecordIdentity:
    """
    Return the dedup key of a call, made from the first that applies:

    - `response_id`: the provider's response or request id, if it is long.
    - `span`: the record's trace_id and span_id are those of the call.
    - `response_id` if it is short, or `shared_id`, which callers choose or retries share, with facts that
      distinguish calls.
    - `own_id`: the source's own id.
    - the session with its start. `sequence`: a number that distinguishes calls for which both are equal.
    """
    if record.status != "cached":
        if response_id and is_long_id(response_id):
            return _identity_from_id(_dedup_key_of_text(2, response_id))
        chosen = response_id or shared_id
        if chosen:
            if span and record.trace_id and record.span_id:
                return _span_identity(dedup_key_of_span(record.trace_id, record.span_id), record, chosen)
            return _log_identity_from_shared_id(record, chosen)
    if span and record.trace_id and record.span_id:
        return _identity_from_id(dedup_key_of_span(record.trace_id, record.span_id))
    if own_id:
        return RecordIdentity(dedup_key_of_parts(5, record.source, own_id))
    if record.session and record.start_time is not None:
        tokens = (record.input_tokens or 0, record.output_tokens or 0)
        return RecordIdentity(
            dedup_key_of_parts(6, record.source, record.session, record.start_time, *tokens, sequence)
        )
    return random_identity()


def _identity_from_id(id: bytes) -> RecordIdentity:
    """Return an identity with only an id. Passing the fields by name would take three times as long."""
    return tuple.__new__(RecordIdentity, (id, (), True, (), (), (), False, False, None, None, None, None))


def with_dedup_keys_and_links(
    identity: RecordIdentity,
    further_keys: tuple[bytes, ...],
    links: tuple[tuple[bytes, bytes], ...],
    keys_to_join: tuple[bytes, ...],
    nested_report: NestedReport | None = None,
    relay: RelayedReport | None = None,
) -> RecordIdentity:
    id, lookups, certain = identity[:3]
    links, scope = identity.links + links, identity.scope
    return tuple.__new__(
        RecordIdentity,
        (
            id,
            lookups,
            certain,
            further_keys,
            links,
            keys_to_join,
            False,
            False,
            nested_report,
            relay,
            None,
            scope,
        ),
    )


def with_span_above(identity: RecordIdentity, agent_span: str) -> RecordIdentity:
    """
    Return the identity with the span of the nearest agent above the call. `_replace` would take three times
    as long.
    """
    return tuple.__new__(RecordIdentity, (*identity[:-2], agent_span, identity[-1]))


def random_identity() -> RecordIdentity:
    """Return an identity with a random id, which is never a duplicate."""
    return RecordIdentity(os.urandom(16), certain=False)


def dedup_key_of_response_id(response_id: str) -> bytes:
    """Return the dedup key by rule 2 of this module, from a long response id."""
    return _dedup_key_of_text(2, response_id)


def dedup_keys_of_request_id(record: Inference, request_id: str | None) -> tuple[bytes, ...]:
    """
    Return a further dedup id (name) made from the provider's id of the HTTP request (`req_...`), by which
    other reports find the call. It equals the id of a report that knows only the request
    (`dedup_key_of_response_id`). Return nothing if the id is short, or if the response is cached, because a cached
    response repeats an earlier id.
    """
    if request_id is None or record.status == "cached" or not is_long_id(request_id):
        return ()
    return (dedup_key_of_response_id(request_id),)


def describe_dedup_rule(record: Inference) -> str:
    """Describe in words the rule that made the record's dedup key, as far as the record shows it."""
    known = record.id
    request_id = record.request_id
    if request_id:
        if is_long_id(request_id) and known == dedup_key_of_parts(2, request_id):
            return "recognized by its response id"
        if known == _log_identity_from_shared_id(record, request_id).id:
            return (
                "recognized by its id with outcome, token counts and start time, because the id is short "
                "or several calls may share it"
            )
        if known == dedup_key_of_parts(5, record.source, request_id):
            return "recognized by its source's own id"
    if record.trace_id and record.span_id and known == dedup_key_of_span(record.trace_id, record.span_id):
        return "recognized by its trace and span id"
    return "recognized by an id that is not stored, or that another Tollhouse assigned"


def identity_from_ids(record: Inference) -> RecordIdentity | None:
    """Return the identity of a record by its ids alone, or None if they do not suffice."""
    candidates = []
    if record.request_id:
        if is_long_id(record.request_id):
            candidates.append(_identity_from_id(dedup_key_of_response_id(record.request_id)))
        candidates.append(_log_identity_from_shared_id(record, record.request_id))
        candidates.append(RecordIdentity(dedup_key_of_parts(5, record.source, record.request_id)))
    if record.trace_id and record.span_id:
        id = dedup_key_of_span(record.trace_id, record.span_id)
        if record.request_id and record.status != "cached":
            candidates.append(_span_identity(id, record, record.request_id))
        candidates.append(_identity_from_id(id))
    return next((candidate for candidate in candidates if candidate.id == record.id), None)


def dedup_keys_by_exact_start(record: Inference, shared_ids: Iterable[str | None]) -> tuple[bytes, ...]:
    """
    Return a further dedup id of the call for each id in `shared_ids` (such as a trace id, which several calls
    share), made with the model, outcome, counts and exact start.

    Starts are compared to the microsecond, because calls in a loop differ that little and reports of one
    process agree.
    """
    if record.start_time is None:
        return ()
    model = _model_name(record)
    tokens = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    moment = (record.start_time + 500) // 1000
    call = f"{model}\0{record.status == 'error'}\0{tokens}\0at\0{moment}"
    return tuple([dedup_key_of_parts(3, f"{group}\0{call}") for group in shared_ids if group is not None])


def dedup_key_from_call_id(source: str, call_id: str) -> bytes:
    """
    Return a further dedup id (name) from a source's call id. The dedup key is made from another id of the
    report.
    """
    return dedup_key_of_parts(5, source, "call", call_id)


def identity_of_call_end_report(call: RecordIdentity, join_key: bytes) -> RecordIdentity:
    """
    Return the identity of a report that describes only the end of a call.

    The report is merged into the recorded call. If there is none, it becomes a record. A later report of the
    call finds this record by `join_key` in its `joins`.
    """
    if not call.certain:
        return call
    return RecordIdentity(
        derived_dedup_key(call.id, "end"), lookups=(call.id, *call.lookups, *call.also), also=(join_key,)
    )


def links_by_common_id(
    record: Inference, common_id: str | None, *, own_report_kind: str, other_report_kind: str
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links between reports of two kinds about one response, such as a call and an event that counts its
    tokens. Both state the id `common_id`.

    They match by id, model and counts. Times are left out, because they differ by source.
    """
    if common_id is None or record.status != "ok":
        return ()
    model = _model_name(record)
    tokens = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    call = f"{common_id}\0{model}\0{tokens}\0answer"
    return ((dedup_key_of_parts(3, own_report_kind, call), dedup_key_of_parts(3, other_report_kind, call)),)


def links_by_session_and_end_time(
    record: Inference, *, own_report_kind: str, other_report_kind: str
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links between two kinds of reports without a common id: by session, model, outcome, counts and end.

    Ends are rounded to a few seconds, because the reports may differ.
    """
    if record.session is None or record.end_time is None:
        return ()
    model = _model_name(record)
    tokens = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    return _links_by_end_time(
        f"{record.session}\0{model}\0{record.status == 'error'}\0{tokens}\0end",
        record.end_time,
        own_report_kind,
        other_report_kind,
    )


def build_relayed_report(
    record: Inference,
    *sessions: str | None,
    report_kind: str,
    states_request_id: bool = False,
    lacks_common_id: bool = False,
    other_names: Iterable[str | None] = (),
    program: str | None = None,
) -> RelayedReport | None:
    """
    Return how an assistant's report matches its gateway's, or None if it states no end time, or nothing that
    the other side may state as well.

    `sessions`: the assistant's session under each of its names. Only ids of a unique form count. The model
    may differ, because the gateway may serve another. Failures match without counts, because assistants do
    not report them.

    `lacks_common_id`: the other side may state neither this report's id nor a session. So the report also
    matches by its counts with one of its models or of `other_names`, such as the gateway's name of the model,
    or with the `program` that calls the gateway. A failure matches by both a model and the program.
    """
    if record.end_time is None:
        return None
    failed = record.status == "error"
    counts = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    keys = [
        f"{session}\0{'failed' if failed else counts}"
        for session in sessions
        if session is not None and has_unique_id_form(session)
    ]
    if lacks_common_id:
        stated = (record.request_model, record.response_model, *other_names)
        models = [name.rpartition("/")[2] for name in stated if name is not None]
        if not failed and record.input_tokens and record.output_tokens:
            programs = [] if program is None else [f"program {program}"]
            keys += [f"{name}\0{counts}\0sealed" for name in (*models, *programs)]
        elif failed and program is not None:
            keys += [f"{program}\0{model}{_ANY_FAILURE}" for model in models]
    if not keys:
        return None
    start = None if record.start_time == record.end_time else record.start_time
    return RelayedReport(report_kind, tuple(dict.fromkeys(keys)), start, record.end_time, states_request_id)


def without_keys_of_any_failure(relay: RelayedReport) -> RelayedReport | None:
    """
    Return the report without the keys of failures that state no session. The holder of a device's key could
    guess them, and see the gateway's facts about the failed calls of others.
    """
    keys = tuple([key for key in relay.keys if not key.endswith(_ANY_FAILURE)])
    return relay._replace(keys=keys) if keys else None


def dedup_key_of_relayed_report(
    report_kind: str, call_text: str, end_step: int, ordinal: int, *, states_request_id: bool
) -> bytes:
    """
    Return the dedup id of an assistant's or a gateway's report (`report_kind`). It is made from the call's
    `call_text`, its end in steps, and `ordinal`, the number among equal reports.
    """
    return dedup_key_of_parts(3, report_kind, call_text, end_step, ordinal, states_request_id)


def links_between_stream_reports(
    record: Inference, *, own_report_kind: str, other_report_kind: str
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links between the two reports of a streamed response.

    One report is sent at the end, in a trace of its own. The other is the span below the call that started
    the stream. They match by service, model, counts and end.
    """
    if record.end_time is None or record.input_tokens is None or record.output_tokens is None:
        return ()
    model = _model_name(record)
    tokens = f"{record.input_tokens}\0{record.output_tokens}"
    return _links_by_end_time(
        f"{record.tags.get('service')}\0{model}\0{tokens}\0stream",
        record.end_time,
        own_report_kind,
        other_report_kind,
    )


def build_nested_report(
    record: Inference,
    processes_and_traces: Sequence[str],
    start_ns: int | None,
    end_ns: int | None,
    *,
    is_inner: bool,
) -> NestedReport | None:
    """
    Return how a report matches the other report of its process. Return None if start, end or, unless the call
    failed, token counts are missing.

    `processes_and_traces`: the processes and traces that the other report may be in.
    """
    failed = record.status == "error"
    if start_ns is None or end_ns is None or end_ns < start_ns or record.status == "cached":
        return None
    if not failed and (record.input_tokens is None or record.output_tokens is None):
        return None
    inputs = possible_input_counts(record) if is_inner else [record.input_tokens or 0]
    call = f"{failed}\0{record.output_tokens or 0}"
    keys = [f"{place}\0{call}\0{count}" for place in processes_and_traces for count in inputs]
    return NestedReport(is_inner, tuple(keys), start_ns, end_ns)


def limit_to_sender_key(nested_report: NestedReport, sender_key: str | None) -> NestedReport:
    """
    Return the report with keys that match only reports by the same sender key, because a service may run on
    two machines.
    """
    keys = [f"{sender_key}\0{key}" if key.startswith(OF_SERVICE) else key for key in nested_report.keys]
    return nested_report._replace(keys=tuple(keys))


def possible_input_counts(record: Inference) -> list[int]:
    """
    Return the input token counts that another report of the same call may state: with and without tokens read
    from and written to a cache.
    """
    whole, read, written = (
        record.input_tokens or 0,
        record.cache_read_tokens or 0,
        record.cache_write_tokens or 0,
    )
    return list(dict.fromkeys([whole, whole - read - written, whole - read, whole - written]))


def dedup_key_of_nested_report(key: str, time_step: int, ordinal: int, *, is_inner: bool) -> bytes:
    """
    Return the dedup id of a nested report, from a key, the report's end in steps of STEP_NS, and `ordinal`,
    its number among equal reports.
    """
    return dedup_key_of_parts(3, key, _INNER if is_inner else _OUTER, time_step, ordinal)


def encode_times_as_dedup_key(nested_report: NestedReport) -> bytes:
    """
    Encode the report's start and end in microseconds as a dedup id (name). `decode_times_from_dedup_keys` decodes
    it.
    """
    start, duration = nested_report.start // 1000, (nested_report.end - nested_report.start) // 1000
    return _TIMES[nested_report.is_inner] + start.to_bytes(7) + min(duration, 2**40 - 1).to_bytes(5)


def decode_times_from_dedup_keys(dedup_keys: Iterable[bytes], *, is_inner: bool) -> list[tuple[int, int]]:
    """
    Return the start and end in nanoseconds that `encode_times_as_dedup_key` put into keys of inner (an SDK's) or
    outer reports.
    """
    filed = [name for name in dedup_keys if name.startswith(_TIMES[is_inner])]
    starts = [int.from_bytes(name[4:11]) * 1000 for name in filed]
    return [
        (start, start + int.from_bytes(name[11:]) * 1000) for start, name in zip(starts, filed, strict=True)
    ]


def _model_name(record: Inference) -> str:
    return (record.request_model or record.response_model or "").rpartition("/")[2]


def _links_by_end_time(
    call_text: str, end_time: int, own_report_kind: str, other_report_kind: str
) -> tuple[tuple[bytes, bytes], ...]:
    step = end_time // STEP_NS
    own_name = dedup_key_of_parts(3, own_report_kind, call_text, step)
    return tuple(
        [
            (own_name, dedup_key_of_parts(3, other_report_kind, call_text, step + shift))
            for shift in (0, -1, 1)
        ]
    )


def dedup_key_of_span(trace_id: str, span_id: str) -> bytes:
    """Return the dedup key by rule 4 of this module, from a span."""
    return _dedup_key_of_text(4, f"{trace_id}\0{span_id}")


def caller_and_server_link_keys(trace_id: str, span_id: str, outcome: str) -> tuple[bytes, bytes]:
    """
    Return two dedup ids (names), for the caller's and for the server's report of a call, made of the span
    that sent the request.

    The outcome is part of them, because the same span may also have sent a failed attempt.
    """
    link_text = f"{trace_id}\0{span_id}\0{outcome}".encode("utf-8", "surrogatepass")
    both = blake2b(link_text, digest_size=32, person=b"tollhouse-link").digest()
    return both[:16], both[16:]


def links_to_server_and_caller(
    record: Inference,
    sending_span: tuple[str, str],
    caller_span: tuple[str, str] | None,
    *,
    states_request_id: bool,
    has_provider_counts: bool,
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links of a call to the report of the server that it calls, and to that of its caller.

    `sending_span`: trace and span id of the span that sent the request. `caller_span`: those of the caller's span.

    `states_request_id`: the report states the provider's request id. Retries of a caller have equal links, so two
    failures that both state a request id match only if the ids are equal. A report without a request id gets
    one more id, by which reports with one find it.

    `has_provider_counts`: the counts are the provider's. A caller may count cached input differently or not at
    all, so the call is linked under all possible counts.
    """
    if record.status == "error":
        sides, unnamed = [
            _server_and_caller_links(sending_span, caller_span, (outcome,))
            for outcome in (_FAILED, _FAILED_UNNAMED)
        ]
        if states_request_id:
            return tuple([(own, other) for (own, _), (_, other) in zip(sides, unnamed, strict=True)])
        # Links with two equal names are stored, so that reports with a request id find this call. They find
        # nothing themselves.
        return (*sides, *[(own, own) for own, _ in unnamed])
    return _server_and_caller_links(
        sending_span, caller_span, _token_count_texts(record, has_provider_counts=has_provider_counts)
    )


_FAILED, _FAILED_UNNAMED = "error", "error without a request id"
_UNCOUNTED = "0\x000"


def _server_and_caller_links(
    sending_span: tuple[str, str], caller_span: tuple[str, str] | None, outcome_texts: tuple[str, ...]
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links of a call to its server's report and, with `caller_span`, to its caller's. The first outcome
    is this report's; the caller's report may state any of `outcome_texts`.
    """
    links = [caller_and_server_link_keys(*sending_span, outcome_texts[0])]
    if caller_span is not None:
        for outcome in outcome_texts:
            maker_name, answerer_name = caller_and_server_link_keys(*caller_span, outcome)
            links.append((answerer_name, maker_name))
    return tuple(links)


def _token_count_texts(record: Inference, *, has_provider_counts: bool) -> tuple[str, ...]:
    input_tokens, output_tokens = record.input_tokens or 0, record.output_tokens or 0
    counts = f"{input_tokens}\0{output_tokens}"
    if not has_provider_counts:
        return (counts,)
    inputs = possible_input_counts(record)
    return tuple(dict.fromkeys((*[f"{tokens}\0{output_tokens}" for tokens in inputs], _UNCOUNTED)))


def dedup_key_of_metric_point(series: bytes, start_time: int, time: int) -> bytes:
    """Return the dedup key by rule 7 of this module, of a data point of a metric."""
    return dedup_key_of_parts(7, series.hex(), start_time, time)


def dedup_key_of_cloud_event(source: str, event_id: str) -> bytes:
    """Return the dedup key by rule 7 of this module, of a CloudEvent."""
    return dedup_key_of_parts(7, source, event_id)


def derived_dedup_key(record_id: bytes, purpose: str) -> bytes:
    """Return an id for a purpose, made from a record's id. Equal arguments give equal ids."""
    return dedup_key_of_parts(8, record_id.hex(), purpose)


def identity_for_uncounted_source(identity: RecordIdentity) -> RecordIdentity:
    """
    Return the identity of a report from a source whose calls are not counted.

    It matches a recorded call, or another report that is not counted. Counted reports do not find it, so the
    first counted report becomes a record even if it arrives later.
    """
    sides = [
        other
        for own, other in identity.links
        if is_log_to_span_dedup_key(own) or is_log_to_span_dedup_key(other)
    ]
    call = (identity.id, *identity.lookups, *sides)
    own, *near = (derived_dedup_key(id, "shadow") for id in call)
    return RecordIdentity(own, lookups=(*near, *call))


def build_request_dedup_keys(sender: str, path: str, idempotency_key: str, *body: bytes) -> RequestDedupKeys:
    key = dedup_key_of_parts(10, sender, path, idempotency_key)
    content_hash = blake2b(key, digest_size=32)
    for part in body:
        content_hash.update(len(part).to_bytes(8) + part)
    return RequestDedupKeys(key, dedup_key_of_parts(11, content_hash.hexdigest()))


def dedup_key_of_request_item(request: RequestDedupKeys, item_index: int) -> bytes:
    return dedup_key_of_parts(9, request.body.hex(), item_index)


def derived_trace_and_span_ids(record_id: bytes) -> tuple[bytes, bytes]:
    """
    Return the trace id (16 bytes) and span id (8 bytes) under which a record is exported if it has none of
    its own.

    They derive from the record's id, so a receiver that knows that id can distinguish them from the source's
    ids.
    """
    cut = blake2b(record_id, digest_size=24, person=STAND_IN).digest()
    return cut[:16], cut[16:]


def with_dedup_keys_of_trace(
    identity: RecordIdentity, record: Inference, short_or_shared_id: str, scope: str
) -> RecordIdentity:
    """
    Return the identity of a span's record whose response id is short or shared. The added dedup ids match
    spans of other instrumentation scopes in the same trace.
    """
    call = f"{record.trace_id}\0{_id_outcome_and_counts_text(record, short_or_shared_id)}"
    same, *near = [
        dedup_key_of_parts(3, f"{call}{step}\0in trace") for step in _texts_of_near_start_steps(record)
    ]
    # a link with two equal names is stored, so that other spans find this call; it finds nothing itself
    links = ((same, same), *identity.links)
    return with_span_scope(identity._replace(lookups=(same, *near), links=links), scope)


def with_span_scope(identity: RecordIdentity, scope: str) -> RecordIdentity:
    return identity._replace(scope=f"scope {scope}")


def scope_dedup_flags(record_id: bytes, *scopes: str) -> tuple[bytes, ...]:
    """
    Return for each instrumentation scope the dedup id that says: the record has a span of this scope,
    identified by the span's ids. Every such record also has the scope "", or ANY_SCOPE if the scope is
    unknown.
    """
    return tuple([derived_dedup_key(record_id, f"span {scope}") for scope in scopes])


def is_log_to_span_dedup_key(dedup_key: bytes) -> bool:
    """
    Return whether the dedup name is one by which logs find a span with which they share only a short or
    shared id.
    """
    return dedup_key.startswith(_SPAN)


def _span_identity(id: bytes, record: Inference, short_or_shared_id: str) -> RecordIdentity:
    """Return the identity of a span. A short or shared id is not its dedup key, but links it to logs."""
    logged, spans = _log_and_span_dedup_keys(record, short_or_shared_id)
    links = tuple([(spans[0], name) for name in logged]) + _links_between_counted_and_uncounted(
        record, short_or_shared_id, is_span=True
    )
    return RecordIdentity(id, links=links, scope="")


def _log_identity_from_shared_id(record: Inference, short_or_shared_id: str) -> RecordIdentity:
    (id, *near), spans = _log_and_span_dedup_keys(record, short_or_shared_id)
    links = tuple([(id, name) for name in spans]) + _links_between_counted_and_uncounted(
        record, short_or_shared_id, is_span=False
    )
    return RecordIdentity(id, lookups=tuple(near), links=links)


def _log_and_span_dedup_keys(record: Inference, short_or_shared_id: str) -> tuple[list[bytes], list[bytes]]:
    call = _id_outcome_and_counts_text(record, short_or_shared_id)
    logged = [dedup_key_of_parts(3, f"{call}{step}") for step in _texts_of_near_start_steps(record)]
    return logged, [
        _SPAN + dedup_key_of_parts(3, f"{call}{step}\0span")[4:]
        for step in _texts_of_near_start_steps(record)
    ]


def _id_outcome_and_counts_text(record: Inference, short_or_shared_id: str) -> str:
    failed = record.status == "error"
    return f"{short_or_shared_id}\0{failed}\0{record.input_tokens or 0}\0{record.output_tokens or 0}"


def _texts_of_near_start_steps(record: Inference) -> list[str]:
    if record.start_time is None:
        return [""]
    step = record.start_time // STEP_NS
    return [f"\0{near}" for near in (step, step - 1, step + 1)]


def _links_between_counted_and_uncounted(
    record: Inference, short_or_shared_id: str, *, is_span: bool
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links between a report with token counts and a report without: two logs, or a log and a span.

    Their dedup keys differ, because the counts are part of them. The links match by id, model and exact
    start. Two reports with different counts never match.
    """
    if record.start_time is None or record.status == "error":
        return ()
    call = f"{short_or_shared_id}\0{_model_name(record)}\0{(record.start_time + 500) // 1000}"
    is_counted = bool(record.input_tokens or record.output_tokens)
    sides = [(AS_SPAN, AS_EVENT)] if is_span else [(AS_EVENT, AS_EVENT), (AS_EVENT, AS_SPAN)]
    return tuple([
        (dedup_key_of_parts(3, call, own, other, is_counted), dedup_key_of_parts(3, call, other, own, not is_counted))
        for own, other in sides
    ])  # fmt: skip
