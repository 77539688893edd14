"""
The identity of a record: a 128-bit hash that is the same in every installation, by the first of seven rules
that applies: an id given by another Tollhouse, the provider's long response id, a short or shared id with
what tells calls apart, the span, the source's own id, the session and its moment, the point or event.

Pure functions. Dialects and formats say which of their ids is which; nothing here knows a source by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from spool.record import NS, Inference

_PREFIX = re.compile(r"[A-Za-z]+[-_]")
# Hashes that are begun: to copy one takes half the time of a new one.
_HASHES = {rule: blake2b(digest_size=16, person=b"tollhouse-%d" % rule) for rule in range(1, 12)}
STAND_IN = b"tollhouse-span"
LONG_ENOUGH = 16  # characters after the prefix: below that local servers count 0, 1, 2, ...
STEP_NS = 4 * NS
CHECK_ID = (
    b"tollhouse check."  # of the call that `tollhouse check` sends: no hash, and no record is kept under it
)
AS_SPAN, AS_EVENT = "span", "event"  # kinds of reports of one call
AS_STREAM, BELOW_STREAM = "stream", "below stream"


class Identity(NamedTuple):
    """
    `lookups` are further ids under which the same call may already be known; not `certain` is never a duplicate.

    `also` are names that the call is looked up and remembered under besides: reports that do not have its id
    know it by one of them.

    `links` are pairs of names, own and other, of two sides that each tell the call once: the report is the
    call that is known under `other`, unless another report is known under `own`; it is remembered under
    `own`. Where one own name has several others, as times of two clocks have, each name is joined to one of
    the other side.

    `joins` are names under which others may have told how the call ended, and no more: the report is one with
    theirs while that record is open, else the call is a record of its own, with what they told. It is
    remembered under them.

    `is_final`: the cost of the report holds in place of another one, because the seller of the call settles it.
    """

    id: bytes
    lookups: tuple[bytes, ...] = ()
    certain: bool = True
    also: tuple[bytes, ...] = ()
    links: tuple[tuple[bytes, bytes], ...] = ()
    joins: tuple[bytes, ...] = ()
    is_final: bool = False

    @property
    def names(self) -> tuple[bytes, ...]:
        """Further names under which the call is remembered."""
        return (*self.also, *[own for own, _ in self.links], *self.joins)


class RequestNames(NamedTuple):
    """What a request is known by whose sender chose a key for it: by the key alone, and by the key with the body."""

    key: bytes
    body: bytes


def digest(rule: int, *parts: object) -> bytes:
    """128 bits of the parts, joined by NUL."""
    text = (
        "\0".join(["" if part is None else str(part) for part in parts]) if len(parts) > 1 else str(parts[0])
    )
    hash = _HASHES[rule].copy()
    hash.update(text.encode("utf-8", "surrogatepass"))
    return hash.digest()


def _digest_of(rule: int, text: str) -> bytes:
    """The digest of one text: most calls are known by one, and joining parts takes half of the time."""
    hash = _HASHES[rule].copy()
    hash.update(text.encode("utf-8", "surrogatepass"))
    return hash.digest()


def is_long(response_id: str) -> bool:
    """True if enough of the id remains after its prefix (`chatcmpl-`, `msg_`, ...) to be unique everywhere."""
    before = response_id[:-LONG_ENOUGH]
    # whether or not a prefix ends there: nearly every id, and found at once
    if "-" in before or "_" in before:
        return True
    prefix = _PREFIX.match(response_id)
    return len(response_id) - (prefix.end() if prefix else 0) >= LONG_ENOUGH


def of_call(
    record: Inference,
    *,
    response_id: str | None = None,
    shared_id: str | None = None,
    span: bool = False,
    own_id: str | None = None,
    sequence: object = None,
) -> Identity:
    """
    The first rule that applies to an AI call.

    `response_id`: the provider's response or request id (rule 2 when long, else 3). `shared_id`: an id that
    callers choose or that several attempts share (rule 3). `span`: trace_id and span_id are the call's own
    (rule 4). `own_id`: the source's own id of the call (rule 5). `sequence`: tells calls of one session and
    instant apart (rule 6).
    """
    if record.status != "cached":
        if response_id and is_long(response_id):
            return _known_by(of_response(response_id))
        chosen = response_id or shared_id
        if chosen:
            return _by_shared_id(record, chosen)
    if span and record.trace_id and record.span_id:
        return _known_by(of_span(record.trace_id, record.span_id))
    if own_id:
        return Identity(digest(5, record.source, own_id))
    if record.session and record.start_time is not None:
        tokens = (record.input_tokens or 0, record.output_tokens or 0)
        return Identity(digest(6, record.source, record.session, record.start_time, *tokens, sequence))
    return no_identity()


def _known_by(id: bytes) -> Identity:
    """The identity that is an id alone; by the names of its fields it takes three times as long."""
    return tuple.__new__(Identity, (id, (), True, (), (), (), False))


def with_names(
    identity: Identity,
    also: tuple[bytes, ...],
    links: tuple[tuple[bytes, bytes], ...],
    joins: tuple[bytes, ...],
) -> Identity:
    """The same with the names that others know the call by."""
    id, lookups, certain = identity[:3]
    return tuple.__new__(Identity, (id, lookups, certain, also, links, joins, False))


def no_identity() -> Identity:
    """An id of its own for what nothing tells apart: it repeats nothing."""
    return Identity(os.urandom(16), certain=False)


def of_response(response_id: str) -> bytes:
    """Rule 2: the id, or a further name, of the call that the provider gave a long id."""
    return _digest_of(2, response_id)


def of_responses(response_ids: Iterable[str]) -> list[bytes]:
    """Return what `of_response` does for each, in fewer steps."""
    found = []
    copied = _HASHES[2].copy
    for response_id in response_ids:
        hash = copied()
        hash.update(response_id.encode("utf-8", "surrogatepass"))
        found.append(hash.digest())
    return found


def rule_of(record: Inference) -> str:
    """Describe in words the id by which a call is recognised, as far as the record shows it."""
    known = record.id
    request_id = record.request_id
    if request_id:
        if is_long(request_id) and known == digest(2, request_id):
            return "known by its response id"
        if known == _by_shared_id(record, request_id).id:
            return "known by its id with outcome, counts and start: the id is short, or several calls may share it"
        if known == digest(5, record.source, request_id):
            return "known by its source's own id"
    if record.trace_id and record.span_id and known == of_span(record.trace_id, record.span_id):
        return "known by its trace and span id"
    return "known by an id that is not on record, or that another Tollhouse gave it"


def stated_by(record: Inference) -> Identity | None:
    """
    Return the identity of a record if it follows from the ids that the record shows, so that any report of
    the call has it; None if its id was given in another way.
    """
    candidates = []
    if record.request_id:
        if is_long(record.request_id):
            candidates.append(_known_by(of_response(record.request_id)))
        candidates.append(_by_shared_id(record, record.request_id))
        candidates.append(Identity(digest(5, record.source, record.request_id)))
    if record.trace_id and record.span_id:
        candidates.append(_known_by(of_span(record.trace_id, record.span_id)))
    return next((candidate for candidate in candidates if candidate.id == record.id), None)


def of_moment(record: Inference, groups: Iterable[str | None]) -> tuple[bytes, ...]:
    """
    Names for a call of groups whose ids several calls share: by its model, outcome, counts and exact start.

    To the microsecond, in which clocks of one process agree: calls of one loop begin apart. Empty without a start.
    """
    if record.start_time is None:
        return ()
    model = _model(record)
    tokens = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    moment = (record.start_time + 500) // 1000
    call = f"{model}\0{record.status == 'error'}\0{tokens}\0at\0{moment}"
    return tuple([digest(3, f"{group}\0{call}") for group in groups if group is not None])


def of_call_id(source: str, call_id: str) -> bytes:
    """
    A name for a call by an id that a source gives the call, where each of its reports has an id of its own, too.
    """
    return digest(5, source, "call", call_id)


def of_end_alone(call: Identity, name: bytes) -> Identity:
    """
    Return the identity of a report that only says how a call ended. It joins the call if that is on record;
    else it is a record of its own, which the call finds by a name (`joins`).
    """
    if not call.certain:
        return call
    return Identity(of_derived(call.id, "end"), lookups=(call.id, *call.lookups), also=(name,))


def of_answer(record: Inference, chosen: str | None) -> tuple[bytes, ...]:
    """
    A name for an answer by an id that some reports take for the provider's and others for one that attempts share.

    By the id, the model and the counts, because reports of different sources time the answer differently.
    """
    if chosen is None or record.status != "ok":
        return ()
    model = _model(record)
    tokens = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    return (digest(3, f"{chosen}\0{model}\0{tokens}\0answer"),)


def of_end(record: Inference, *, own: str, other: str) -> tuple[tuple[bytes, bytes], ...]:
    """
    Links of a call that reports of two kinds tell, neither with an id: by its session, model, outcome,
    counts and end.

    To a few seconds, as the two may note different ends. Empty without a session or an end.
    """
    if record.session is None or record.end_time is None:
        return ()
    model = _model(record)
    tokens = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    return _by_end(
        f"{record.session}\0{model}\0{record.status == 'error'}\0{tokens}\0end", record.end_time, own, other
    )


def of_stream(record: Inference, *, own: str, other: str) -> tuple[tuple[bytes, bytes], ...]:
    """
    Links of a stream that is told when it is over, in a trace of its own, and by the span of the call below
    the one that began it: by its service, model, counts and end.

    Empty without counts or an end.
    """
    if record.end_time is None or record.input_tokens is None or record.output_tokens is None:
        return ()
    model = _model(record)
    tokens = f"{record.input_tokens}\0{record.output_tokens}"
    return _by_end(f"{record.tags.get('service')}\0{model}\0{tokens}\0stream", record.end_time, own, other)


def _model(record: Inference) -> str:
    """The model without the names of those who serve it."""
    return (record.request_model or record.response_model or "").rpartition("/")[2]


def _by_end(call: str, end_time: int, own: str, other: str) -> tuple[tuple[bytes, bytes], ...]:
    step = end_time // STEP_NS
    told = digest(3, own, call, step)
    return tuple([(told, digest(3, other, call, step + shift)) for shift in (0, -1, 1)])


def of_span(trace_id: str, span_id: str) -> bytes:
    """Rule 4: the id, or a further name, of the call that a span tells."""
    return _digest_of(4, f"{trace_id}\0{span_id}")


def of_link(trace_id: str, span_id: str, record: Inference) -> tuple[bytes, bytes]:
    """
    Names for a call by the span from which it is made: as who makes it tells it, and as who answers it does.

    With its outcome and its counts, because an attempt that failed may have been made from the same span.
    """
    outcome = "error"
    if record.status != "error":
        outcome = f"{record.input_tokens or 0}\0{record.output_tokens or 0}"
    made = f"{trace_id}\0{span_id}\0{outcome}".encode("utf-8", "surrogatepass")
    both = blake2b(made, digest_size=32, person=b"tollhouse-link").digest()
    return both[:16], both[16:]


def of_point(series: bytes, start_time: int, time: int) -> bytes:
    """Rule 7 for a metric point."""
    return digest(7, series.hex(), start_time, time)


def of_event(source: str, event_id: str) -> bytes:
    """Rule 7 for a CloudEvent."""
    return digest(7, source, event_id)


def of_derived(record_id: bytes, purpose: str) -> bytes:
    """The id of what is made from a record, the same whenever it is made again."""
    return digest(8, record_id.hex(), purpose)


def of_shadow(identity: Identity) -> Identity:
    """
    Return the identity of a report whose source does not count: that of the shadow or call on record, else
    one of its own.

    Nobody looks for that one but shadows: the first report that counts is a record, whatever came before it.
    """
    call = (identity.id, *identity.lookups)
    own, *near = (of_derived(id, "shadow") for id in call)
    return Identity(own, lookups=(*near, *call))


def of_request(sender: str, path: str, idempotency_key: str, *body: bytes) -> RequestNames:
    """The names of a request that its sender can tell apart and may repeat; `body` is all that it says, in parts."""
    key = digest(10, sender, path, idempotency_key)
    said = blake2b(key, digest_size=32)
    for part in body:
        said.update(len(part).to_bytes(8) + part)
    return RequestNames(key, digest(11, said.hexdigest()))


def of_item(request: RequestNames, place: int) -> bytes:
    """The id of an item in a request."""
    return digest(9, request.body.hex(), place)


def stand_in_ids(record_id: bytes) -> tuple[bytes, bytes]:
    """
    Trace id (16 bytes) and span id (8) for a record that leaves as a span and has none.

    Cut from the hash of its id: a receiver that knows the id can tell them from ids that the source gave.
    """
    cut = blake2b(record_id, digest_size=24, person=STAND_IN).digest()
    return cut[:16], cut[16:]


def _by_shared_id(record: Inference, chosen: str) -> Identity:
    failed = record.status == "error"
    call = f"{chosen}\0{failed}\0{record.input_tokens or 0}\0{record.output_tokens or 0}"
    if record.start_time is None:
        return Identity(digest(3, call))
    step = record.start_time // STEP_NS
    before = digest(3, f"{call}\0{step - 1}")
    after = digest(3, f"{call}\0{step + 1}")
    return Identity(digest(3, f"{call}\0{step}"), lookups=(before, after))
