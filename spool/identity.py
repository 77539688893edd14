"""
Dedup keys of records: 128-bit hashes that are equal in every installation.

There are seven rules, in order: an id that another Tollhouse assigned, the provider's long response id, a
short or shared id with facts that distinguish calls, the span, the source's own id, the session with its
start time, and the point or event. The first rule that applies makes the key.

Pure functions. Dialects and formats decide which of their ids plays which part. This module knows no
source by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from spool.record import NS, Inference

_PREFIX = re.compile(r"[A-Za-z]+[-_]")
# Prepared hash objects. Copying one takes half the time of creating one.
_HASHES = {rule: blake2b(digest_size=16, person=b"tollhouse-%d" % rule) for rule in range(1, 12)}
RESPONSE_PERSON = b"tollhouse-2"  # person of the hash in `response_call_id`, for the compiled module
STAND_IN = b"tollhouse-span"
# minimum characters of an id after its prefix; shorter ids may be counters of local servers: 0, 1, 2, ...
LONG_ENOUGH = 16
STEP_NS = 4 * NS
CHECK_ID = (
    # dedup key of the call that `tollhouse check` sends; it is not a hash, and no record is stored under it
    b"tollhouse check."
)
AS_SPAN, AS_EVENT = "span", "event"  # the two kinds of reports of one call
AS_STREAM, BELOW_STREAM = "stream", "below stream"
AS_ASSISTANT, AS_GATEWAY = "assistant", "gateway"  # who calls a gateway, and the gateway
AS_CALL, AS_COUNT = "call", "count"  # reports of a response, and events that only count its tokens
ANY_SCOPE = "any scope"
SEALED = 96  # Limit in characters for ids that providers give. A gateway sealed (encrypted) a longer id.
# A span id, a UUID, 128 bits in hexadecimal, a ULID, or a prefix with a long random part. Any other id may be unique
# only within its session.
_UNIQUE = re.compile(
    "[0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9A-HJKMNP-TV-Z]{26}"
    "|[a-z]{2,8}_[0-9A-Za-z]{20,64}",
    re.ASCII,
)
_INNER, _OUTER = "inner", "outer"
# begins a place of nested reports that is not one process, because several machines may run the same service
OF_SERVICE = "service "


class Nesting(NamedTuple):
    """
    One of two nested reports of a call by the same process, without a common id.

    The inner report is from the SDK that sent the request. The outer report is from the code that called the
    SDK. `keys` have the process or the trace, the outcome and the counts. An inner report has further keys
    if its input includes a cache, because the outer report may leave the cache out. The record of the call may
    have other times than `start` and `end`.
    """

    is_inner: bool
    keys: tuple[str, ...]
    start: int
    end: int


class Relay(NamedTuple):
    """
    One of two reports of a call by an assistant (AS_ASSISTANT) and by the gateway that it calls (AS_GATEWAY), without
    a common id.

    `keys` have the session that the assistant states to the gateway, the outcome and the counts. `start` is None if
    the report states only an end. `names_request`: the report states the provider's id of its request. If both
    reports state one, only equal ids join them.
    """

    side: str
    keys: tuple[str, ...]
    start: int | None
    end: int
    names_request: bool = False


class Identity(NamedTuple):
    """
    Dedup key of a record, with further names of its call.

    If `certain` is False, the record is never a duplicate. `lookups` are further ids under which the call
    may be known.

    `also` are further names of the call, for reports without its id. The call is looked up and
    remembered under them.

    `links` connect two sides that each report the call once, such as its caller and its server. Each link is
    a pair: the name that this side uses, and the name that the other side uses. The report belongs to the
    call that is known under the other side's name, unless this side has already reported that call. The call
    is remembered under this side's name. If one name is linked to several names of the other side, such as
    times of two clocks, the report joins only one call.

    `joins` are names under which another report may have stated only how the call ended. While the record of
    that other report is open, this report joins it. Afterwards the call gets its own record, with the facts
    of that other report. The call is remembered under these names.

    `is_final`: the report is from the seller of the call, so its cost replaces a cost of the same key, and the
    guess of an assistant.

    `is_guess`: the sender computed the cost without knowing the seller's price, so any other known cost counts.
    `nesting`: another report of the same process may have the call in a trace of its own, without a common id.
    `relay`: an assistant or the gateway that it calls may report the call as well, without a common id.
    `above`: the span of the nearest agent above the call, or the first span above it that its request lacks.

    `scope`: name of the scope of a span whose own ids identify the call, because its other id is short or shared;
    "" if it is unknown. None for all other reports. A record has only one such span per scope.
    """

    id: bytes
    lookups: tuple[bytes, ...] = ()
    certain: bool = True
    also: tuple[bytes, ...] = ()
    links: tuple[tuple[bytes, bytes], ...] = ()
    joins: tuple[bytes, ...] = ()
    is_final: bool = False
    is_guess: bool = False
    nesting: Nesting | None = None
    relay: Relay | None = None
    above: str | None = None
    scope: str | None = None

    @property
    def names(self) -> tuple[bytes, ...]:
        """Further names under which the call is remembered."""
        return tuple(dict.fromkeys((*self.also, *[own for own, _ in self.links], *self.joins)))


class RequestNames(NamedTuple):
    """
    Names of a request with an idempotency key: one from the key, and one from the key together with the body.
    """

    key: bytes
    body: bytes


def hash_parts(rule: int, *parts: object) -> bytes:
    """Hash the parts, joined by NUL, to 128 bits."""
    text = (
        "\0".join(["" if part is None else str(part) for part in parts]) if len(parts) > 1 else str(parts[0])
    )
    hash = _HASHES[rule].copy()
    hash.update(text.encode("utf-8", "surrogatepass"))
    return hash.digest()


def _hash_text(rule: int, text: str) -> bytes:
    """
    Hash one text to 128 bits.

    A separate function for speed: most calls hash only one text, and joining parts takes half of the time.
    """
    hash = _HASHES[rule].copy()
    hash.update(text.encode("utf-8", "surrogatepass"))
    return hash.digest()


# first bytes of the names of spans with a short id, under which logs look for them
_SPAN = hash_parts(3, "span")[:4]
# first bytes of `times_name` by `is_inner`
_TIMES = {is_inner: hash_parts(3, is_inner, "times")[:4] for is_inner in (False, True)}


def is_long(response_id: str) -> bool:
    """
    Return True if the id after its prefix (`chatcmpl-`, `msg_`, ...) is long enough to be unique everywhere.
    """
    before = response_id[:-LONG_ENOUGH]
    # a quick check that nearly every long id passes: there is a separator before the last LONG_ENOUGH characters
    if "-" in before or "_" in before:
        return True
    prefix = _PREFIX.match(response_id)
    return len(response_id) - (prefix.end() if prefix else 0) >= LONG_ENOUGH


def is_unique(id: str) -> bool:
    """Return True if an id of a session or a run is unique everywhere by its form."""
    return _UNIQUE.fullmatch(id) is not None


def is_sealed(response_id: str | None) -> bool:
    """Return True if a gateway sealed the id of a response, so that each reader gets another one."""
    return response_id is not None and len(response_id) > SEALED


def id_prefix(record: Inference) -> str | None:
    """Return the prefix of a record's long id (`msg_`, `req_`, ...), or None. A sealed id identifies no call."""
    id = record.request_id
    prefix = None if id is None or is_sealed(id) or not is_long(id) else _PREFIX.match(id)
    return None if prefix is None else prefix[0]


def call_identity(
    record: Inference,
    *,
    response_id: str | None = None,
    shared_id: str | None = None,
    span: bool = False,
    own_id: str | None = None,
    sequence: object = None,
) -> Identity:
    """
    Make the dedup key of an AI call, by the first rule that applies.

    `response_id`: the provider's response or request id (rule 2 if it is long, else rule 3). `shared_id`: an
    id that callers choose or that several attempts share (rule 3). `span`: trace_id and span_id belong to the
    call itself (rule 4, and before rule 3). `own_id`: the source's own id of the call (rule 5). `sequence`:
    distinguishes calls with the same session and start time (rule 6).
    """
    if record.status != "cached":
        if response_id and is_long(response_id):
            return _identity_of_id(_hash_text(2, response_id))
        chosen = response_id or shared_id
        if chosen:
            if span and record.trace_id and record.span_id:
                return _span_identity(span_call_id(record.trace_id, record.span_id), record, chosen)
            return _shared_id_identity(record, chosen)
    if span and record.trace_id and record.span_id:
        return _identity_of_id(span_call_id(record.trace_id, record.span_id))
    if own_id:
        return Identity(hash_parts(5, record.source, own_id))
    if record.session and record.start_time is not None:
        tokens = (record.input_tokens or 0, record.output_tokens or 0)
        return Identity(hash_parts(6, record.source, record.session, record.start_time, *tokens, sequence))
    return no_identity()


def _identity_of_id(id: bytes) -> Identity:
    """Make a dedup key that has only an id. Passing the fields by name would take three times as long."""
    return tuple.__new__(Identity, (id, (), True, (), (), (), False, False, None, None, None, None))


def add_names(
    identity: Identity,
    also: tuple[bytes, ...],
    links: tuple[tuple[bytes, bytes], ...],
    joins: tuple[bytes, ...],
    nesting: Nesting | None = None,
    relay: Relay | None = None,
) -> Identity:
    """Add further names of the call to a dedup key, next to its own links."""
    id, lookups, certain = identity[:3]
    links, scope = identity.links + links, identity.scope
    return tuple.__new__(
        Identity, (id, lookups, certain, also, links, joins, False, False, nesting, relay, None, scope)
    )


def add_span_above(identity: Identity, span: str) -> Identity:
    """Add the span above a call to its dedup key. `_replace` would take three times as long."""
    return tuple.__new__(Identity, (*identity[:-2], span, identity[-1]))


def no_identity() -> Identity:
    """Make a random dedup key for a record that has no distinguishing facts. It is never a duplicate."""
    return Identity(os.urandom(16), certain=False)


def response_call_id(response_id: str) -> bytes:
    """Return the id, or a further name, of a call with a long response id of the provider (rule 2)."""
    return _hash_text(2, response_id)


def provider_request_names(record: Inference, request_id: str | None) -> tuple[bytes, ...]:
    """
    Return a further name of a call, from the id that the provider gave to its HTTP request (`req_...`).

    The name equals the id of a report that knows the call only by this request id (`response_call_id`). Returns
    nothing for a short id, or for a cached response, which repeats the id of an earlier call.
    """
    if request_id is None or record.status == "cached" or not is_long(request_id):
        return ()
    return (response_call_id(request_id),)


def describe_rule(record: Inference) -> str:
    """Describe in words the id by which a call is recognized, as far as the record shows it."""
    known = record.id
    request_id = record.request_id
    if request_id:
        if is_long(request_id) and known == hash_parts(2, request_id):
            return "recognized by its response id"
        if known == _shared_id_identity(record, request_id).id:
            return (
                "recognized by its id with outcome, token counts and start time, because the id is short "
                "or several calls may share it"
            )
        if known == hash_parts(5, record.source, request_id):
            return "recognized by its source's own id"
    if record.trace_id and record.span_id and known == span_call_id(record.trace_id, record.span_id):
        return "recognized by its trace and span id"
    return "recognized by an id that is not stored, or that another Tollhouse assigned"


def identity_from_ids(record: Inference) -> Identity | None:
    """Return the dedup key of a record if the ids in the record determine it, else None."""
    candidates = []
    if record.request_id:
        if is_long(record.request_id):
            candidates.append(_identity_of_id(response_call_id(record.request_id)))
        candidates.append(_shared_id_identity(record, record.request_id))
        candidates.append(Identity(hash_parts(5, record.source, record.request_id)))
    if record.trace_id and record.span_id:
        id = span_call_id(record.trace_id, record.span_id)
        if record.request_id and record.status != "cached":
            candidates.append(_span_identity(id, record, record.request_id))
        candidates.append(_identity_of_id(id))
    return next((candidate for candidate in candidates if candidate.id == record.id), None)


def moment_names(record: Inference, groups: Iterable[str | None]) -> tuple[bytes, ...]:
    """
    Return names for a call, one for each group of calls that share an id. A name contains model, outcome,
    token counts and the exact start.

    Start times are compared to the microsecond. Calls in one loop begin at different times, and clocks within
    a process agree. Returns nothing for a call without a start time.
    """
    if record.start_time is None:
        return ()
    model = _model_name(record)
    tokens = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    moment = (record.start_time + 500) // 1000
    call = f"{model}\0{record.status == 'error'}\0{tokens}\0at\0{moment}"
    return tuple([hash_parts(3, f"{group}\0{call}") for group in groups if group is not None])


def call_id_name(source: str, call_id: str) -> bytes:
    """
    Return a name for a call from the source's id of the call. For sources whose reports all have another
    id as well.
    """
    return hash_parts(5, source, "call", call_id)


def end_report_identity(call: Identity, name: bytes) -> Identity:
    """
    Return the dedup key of a report that only states how a call ended.

    If the call is recorded, the report joins it. Otherwise the report becomes a record of its own. A later
    report of the call finds that record by `name` (`joins`).
    """
    if not call.certain:
        return call
    return Identity(derived_id(call.id, "end"), lookups=(call.id, *call.lookups, *call.also), also=(name,))


def answer_links(
    record: Inference, chosen: str | None, *, own: str, other: str
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return a link between two kinds of reports of a response, from an id whose meaning differs between them: one
    treats it as the provider's response id, the other as an id that attempts share.

    The names consist of the id, the model and the token counts. They have no times, because sources
    report different times.
    """
    if chosen is None or record.status != "ok":
        return ()
    model = _model_name(record)
    tokens = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    call = f"{chosen}\0{model}\0{tokens}\0answer"
    return ((hash_parts(3, own, call), hash_parts(3, other, call)),)


def end_links(record: Inference, *, own: str, other: str) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links between two kinds of reports of a call without an id.

    The reports match by session, model, outcome, token counts and end time. End times are rounded to a few
    seconds, because the two reports may state different ones. Returns nothing without a session or an end time.
    """
    if record.session is None or record.end_time is None:
        return ()
    model = _model_name(record)
    tokens = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    return _links_by_end(
        f"{record.session}\0{model}\0{record.status == 'error'}\0{tokens}\0end", record.end_time, own, other
    )


def build_relay(
    record: Inference,
    *sessions: str | None,
    side: str,
    names_request: bool = False,
    sealed_id: str | None = None,
) -> Relay | None:
    """
    Return the relay of a report by an assistant or by a gateway, or None if it states no end or nothing that the
    other report states as well.

    `sessions` are the assistant's session, under each name that the report has for it. Only ids that are unique by
    their form count. The model is not compared, because the gateway may serve another model than the assistant
    requests. Failures match whatever counts they have, because assistants state none.

    `sealed_id` is the id of a response that the gateway sealed for each reader. Assistants without a session have only
    such ids, so the model and the counts match instead.
    """
    if record.end_time is None:
        return None
    failed = record.status == "error"
    stated = [session for session in dict.fromkeys(sessions) if session is not None and is_unique(session)]
    is_known_by_counts = not failed and is_sealed(sealed_id) and record.input_tokens and record.output_tokens
    if not stated and not is_known_by_counts:
        return None
    counts = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    keys = [f"{session}\0{'failed' if failed else counts}" for session in stated]
    keys = keys or [f"{_model_name(record)}\0{counts}\0sealed"]
    start = None if record.start_time == record.end_time else record.start_time
    return Relay(side, tuple(keys), start, record.end_time, names_request)


def relayed_name(side: str, key: str, step: int, ordinal: int, *, names_request: bool) -> bytes:
    """
    Return a name of a relayed report: the report with this ordinal among those of a side with the same key that end
    in the same step of STEP_NS.
    """
    return hash_parts(3, side, key, step, ordinal, names_request)


def stream_links(record: Inference, *, own: str, other: str) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links between the two reports of a stream.

    One report is sent when the stream has ended, in a trace of its own. The other report is the span below
    the call that started the stream. They match by service, model, token counts and end time. Returns nothing
    without counts or an end time.
    """
    if record.end_time is None or record.input_tokens is None or record.output_tokens is None:
        return ()
    model = _model_name(record)
    tokens = f"{record.input_tokens}\0{record.output_tokens}"
    return _links_by_end(
        f"{record.tags.get('service')}\0{model}\0{tokens}\0stream", record.end_time, own, other
    )


def build_nesting(
    record: Inference, places: Sequence[str], start: int | None, end: int | None, *, is_inner: bool
) -> Nesting | None:
    """
    Return the nesting of a report. `places` are processes and traces in which the other report may be.
    Returns None without both times, and without counts unless the call failed.
    """
    failed = record.status == "error"
    if start is None or end is None or end < start or record.status == "cached":
        return None
    if not failed and (record.input_tokens is None or record.output_tokens is None):
        return None
    inputs = possible_inputs(record) if is_inner else [record.input_tokens or 0]
    call = f"{failed}\0{record.output_tokens or 0}"
    keys = [f"{place}\0{call}\0{count}" for place in places for count in inputs]
    return Nesting(is_inner, tuple(keys), start, end)


def limit_to_sender(nesting: Nesting, sender_key: str | None) -> Nesting:
    """
    Return a nesting that fits only reports of the same sender key where it names no more than a service. Two
    machines may run the same service.
    """
    keys = [f"{sender_key}\0{key}" if key.startswith(OF_SERVICE) else key for key in nesting.keys]
    return nesting._replace(keys=tuple(keys))


def possible_inputs(record: Inference) -> list[int]:
    """Return the input of a report, first with and then without its cached parts."""
    whole, read, written = (
        record.input_tokens or 0,
        record.cache_read_tokens or 0,
        record.cache_write_tokens or 0,
    )
    return list(dict.fromkeys([whole, whole - read - written, whole - read, whole - written]))


def nested_name(key: str, step: int, ordinal: int, *, is_inner: bool) -> bytes:
    """
    Return a name of a nested report: the report with this ordinal among those with the same key that end in
    the same step of STEP_NS.
    """
    return hash_parts(3, key, _INNER if is_inner else _OUTER, step, ordinal)


def times_name(nesting: Nesting) -> bytes:
    """Return a name that has the times of a nested report in microseconds."""
    start, duration = nesting.start // 1000, (nesting.end - nesting.start) // 1000
    return _TIMES[nesting.is_inner] + start.to_bytes(7) + min(duration, 2**40 - 1).to_bytes(5)


def nested_times(names: Iterable[bytes], *, is_inner: bool) -> list[tuple[int, int]]:
    """Return start and end of the nested reports that a record's names are from, in nanoseconds."""
    filed = [name for name in names if name.startswith(_TIMES[is_inner])]
    starts = [int.from_bytes(name[4:11]) * 1000 for name in filed]
    return [
        (start, start + int.from_bytes(name[11:]) * 1000) for start, name in zip(starts, filed, strict=True)
    ]


def _model_name(record: Inference) -> str:
    """Return the model name without the prefix that names its provider or seller."""
    return (record.request_model or record.response_model or "").rpartition("/")[2]


def _links_by_end(call: str, end_time: int, own: str, other: str) -> tuple[tuple[bytes, bytes], ...]:
    step = end_time // STEP_NS
    own_name = hash_parts(3, own, call, step)
    return tuple([(own_name, hash_parts(3, other, call, step + shift)) for shift in (0, -1, 1)])


def span_call_id(trace_id: str, span_id: str) -> bytes:
    """Return the id, or a further name, of a call that a span reports (rule 4)."""
    return _hash_text(4, f"{trace_id}\0{span_id}")


def link_names(trace_id: str, span_id: str, outcome: str) -> tuple[bytes, bytes]:
    """
    Return two names for a call, made from the span that started it: one for the caller's report, and one for
    the server's report.

    The names include the outcome, because a failed attempt may come from the same span.
    """
    link_text = f"{trace_id}\0{span_id}\0{outcome}".encode("utf-8", "surrogatepass")
    both = blake2b(link_text, digest_size=32, person=b"tollhouse-link").digest()
    return both[:16], both[16:]


def call_links(
    record: Inference,
    made_from: tuple[str, str],
    above: tuple[str, str] | None,
    *,
    names_request: bool,
    is_of_provider: bool,
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return the links of a call to its report by the server, and to its report by the caller.

    `made_from` is the span that sent the request, `above` the caller's span: each a trace id and a span id.

    `names_request`: the report states the provider's id of its request. If both reports of a failure state
    one, only equal ids join them, because the attempts of one caller have the same links. So a report without
    such an id has a further name, under which reports with an id look for it.

    `is_of_provider`: the report has the provider's own counts. A caller may count cached input or not, or
    report no counts at all, so the call is linked under all of these counts.
    """
    if record.status == "error":
        sides, unnamed = [
            _links_by_outcome(made_from, above, (outcome,)) for outcome in (_FAILED, _FAILED_UNNAMED)
        ]
        if names_request:
            return tuple([(own, other) for (own, _), (_, other) in zip(sides, unnamed, strict=True)])
        # each further name is a pair with itself: it is remembered, but looks nothing up
        return (*sides, *[(own, own) for own, _ in unnamed])
    return _links_by_outcome(made_from, above, _count_texts(record, is_of_provider=is_of_provider))


_FAILED, _FAILED_UNNAMED = "error", "error without a request id"
_UNCOUNTED = "0\x000"


def _links_by_outcome(
    made_from: tuple[str, str], above: tuple[str, str] | None, outcomes: tuple[str, ...]
) -> tuple[tuple[bytes, bytes], ...]:
    """Return the links by outcome. Only the caller's report may be known by another outcome than the first."""
    links = [link_names(*made_from, outcomes[0])]
    if above is not None:
        for outcome in outcomes:
            maker_name, answerer_name = link_names(*above, outcome)
            links.append((answerer_name, maker_name))
    return tuple(links)


def _count_texts(record: Inference, *, is_of_provider: bool) -> tuple[str, ...]:
    """Return the counts of an answered call as names of links have them. The record's own counts are first."""
    input_tokens, output_tokens = record.input_tokens or 0, record.output_tokens or 0
    counts = f"{input_tokens}\0{output_tokens}"
    if not is_of_provider:
        return (counts,)
    inputs = possible_inputs(record)
    return tuple(dict.fromkeys((*[f"{tokens}\0{output_tokens}" for tokens in inputs], _UNCOUNTED)))


def point_id(series: bytes, start_time: int, time: int) -> bytes:
    """Return the dedup key of a metric point (rule 7)."""
    return hash_parts(7, series.hex(), start_time, time)


def cloud_event_id(source: str, event_id: str) -> bytes:
    """Return the dedup key of a CloudEvent (rule 7)."""
    return hash_parts(7, source, event_id)


def derived_id(record_id: bytes, purpose: str) -> bytes:
    """
    Return the id of a record that is derived from another record. The same arguments always give the same id.
    """
    return hash_parts(8, record_id.hex(), purpose)


def shadow_identity(identity: Identity) -> Identity:
    """
    Return the dedup key of a duplicate kept for reference, from a source that does not count.

    It matches a recorded call or another such duplicate. Otherwise it gets an id under which only such
    duplicates are looked up. So the first report that counts becomes a record, even if such a duplicate
    arrived before it.
    """
    sides = [other for own, other in identity.links if is_of_span_side(own) or is_of_span_side(other)]
    call = (identity.id, *identity.lookups, *sides)
    own, *near = (derived_id(id, "shadow") for id in call)
    return Identity(own, lookups=(*near, *call))


def build_request_names(sender: str, path: str, idempotency_key: str, *body: bytes) -> RequestNames:
    """Return the names of a request with an idempotency key. `body` is its whole content, in parts."""
    key = hash_parts(10, sender, path, idempotency_key)
    content_hash = blake2b(key, digest_size=32)
    for part in body:
        content_hash.update(len(part).to_bytes(8) + part)
    return RequestNames(key, hash_parts(11, content_hash.hexdigest()))


def request_item_id(request: RequestNames, place: int) -> bytes:
    """Return the id of the item at a position in a request."""
    return hash_parts(9, request.body.hex(), place)


def stand_in_ids(record_id: bytes) -> tuple[bytes, bytes]:
    """
    Return a trace id (16 bytes) and a span id (8 bytes), for a record without a span that is sent as a span.

    Both are derived from the record's id. A receiver that knows the record's id can distinguish them from the
    source's own trace and span ids.
    """
    cut = blake2b(record_id, digest_size=24, person=STAND_IN).digest()
    return cut[:16], cut[16:]


def add_trace_names(identity: Identity, record: Inference, chosen: str, scope: str) -> Identity:
    """
    Add names to the dedup key of a span with a short or shared id. They join it to spans of other scopes in its trace.
    """
    call = f"{record.trace_id}\0{_call_under(record, chosen)}"
    same, *near = [hash_parts(3, f"{call}{step}\0in trace") for step in _start_steps(record)]
    # a pair of equal names is remembered, and looks nothing up
    links = ((same, same), *identity.links)
    return with_scope(identity._replace(lookups=(same, *near), links=links), scope)


def with_scope(identity: Identity, scope: str) -> Identity:
    """Add the scope of a span, or of an event of a span, to a dedup key made from the span's own ids."""
    return identity._replace(scope=f"scope {scope}")


def span_marks(record_id: bytes, *scopes: str) -> tuple[bytes, ...]:
    """
    Return the names of a record that has spans of these scopes, whose own ids identify the call. Every such record
    also has the name of the scope "". If the scopes are unknown, the record has the name of ANY_SCOPE.
    """
    return tuple([derived_id(record_id, f"span {scope}") for scope in scopes])


def is_of_span_side(name: bytes) -> bool:
    """Return True if logs look for a span under a name, because only a short or shared id connects them."""
    return name.startswith(_SPAN)


def _span_identity(id: bytes, record: Inference, chosen: str) -> Identity:
    """Identify the call of a span by its own ids. Its short or shared id only links it to logs."""
    logged, spans = _sides_of_short_id(record, chosen)
    links = tuple([(spans[0], name) for name in logged]) + _count_links(record, chosen, is_span=True)
    return Identity(id, links=links, scope="")


def _shared_id_identity(record: Inference, chosen: str) -> Identity:
    (id, *near), spans = _sides_of_short_id(record, chosen)
    links = tuple([(id, name) for name in spans]) + _count_links(record, chosen, is_span=False)
    return Identity(id, lookups=tuple(near), links=links)


def _sides_of_short_id(record: Inference, chosen: str) -> tuple[list[bytes], list[bytes]]:
    """Return the names of a call in logs and in spans: of the step of its start, and of the neighbour steps."""
    call = _call_under(record, chosen)
    logged = [hash_parts(3, f"{call}{step}") for step in _start_steps(record)]
    return logged, [_SPAN + hash_parts(3, f"{call}{step}\0span")[4:] for step in _start_steps(record)]


def _call_under(record: Inference, chosen: str) -> str:
    failed = record.status == "error"
    return f"{chosen}\0{failed}\0{record.input_tokens or 0}\0{record.output_tokens or 0}"


def _start_steps(record: Inference) -> list[str]:
    if record.start_time is None:
        return [""]
    step = record.start_time // STEP_NS
    return [f"\0{near}" for near in (step, step - 1, step + 1)]


def _count_links(record: Inference, chosen: str, *, is_span: bool) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links between a report with token counts and reports of the same call without them: two logs, or a log
    and a span.

    The counts are part of the dedup key (rule 3), so the two keys differ. The reports match by id, model and
    exact start. Two reports with different counts never match.
    """
    if record.start_time is None or record.status == "error":
        return ()
    call = f"{chosen}\0{_model_name(record)}\0{(record.start_time + 500) // 1000}"
    is_counted = bool(record.input_tokens or record.output_tokens)
    sides = [(AS_SPAN, AS_EVENT)] if is_span else [(AS_EVENT, AS_EVENT), (AS_EVENT, AS_SPAN)]
    return tuple([
        (hash_parts(3, call, own, other, is_counted), hash_parts(3, call, other, own, not is_counted))
        for own, other in sides
    ])  # fmt: skip
