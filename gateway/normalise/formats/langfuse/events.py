"""
Langfuse's ingestion batch: events that create and update traces and generations; only generations are calls.

Events of one id are merged. A generation whose other half is not in the batch, and what a trace says of who called, go
into `Outcome.halves`; `langfuse_pending` brings them together across batches. Inputs and outputs are never decoded.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from itertools import chain, islice
from typing import Any, Final

import msgspec

from gateway.errors import BadPayload
from gateway.normalise.formats import litellm
from gateway.normalise.formats.call import Call, count_tokens, fail, is_call
from gateway.normalise.formats.driver import SLICE_BYTES, explained
from gateway.normalise.formats.langfuse.usage import Named, cost_of_details, cost_of_named, of_details, of_named
from gateway.normalise.options import Options
from gateway.normalise.outcome import MALFORMED, MERGED, NOT_AI, Half, Outcome
from gateway.normalise.payload import items as payload
from gateway.normalise.reading.metadata import Metadata
from gateway.normalise.reading.models import model_name, provider
from gateway.normalise.reading.tags import is_secret, put
from gateway.normalise.reading.times import instant
from gateway.normalise.reading.usage import Tokens
from gateway.normalise.reading.values import BadValue, Other, decoded, is_true, mapping, nested, text
from spool.identity import Identity, of_call
from spool.record import Inference

NAME = "langfuse"
TURN: Final = 500  # generations to work on without a pause

# Kinds of halves.
GENERATION: Final = "generation"
WHOLE: Final = "whole generation"  # a record already: for the half that may wait for it
TRACE: Final = "trace"

_CALLS = frozenset({GENERATION, "embedding"})

ORIGINS = {
    "request_id": "body.id",
    "trace_id": "body.traceId",
    "start_time": "body.startTime",
    "end_time": "body.endTime",
    "provider": "the model",
    "request_model": "body.model",
    "input_tokens": "body.usageDetails, else body.usage",
    "output_tokens": "body.usageDetails, else body.usage",
    "cache_read_tokens": "body.usageDetails",
    "cache_write_tokens": "body.usageDetails",
    "reasoning_tokens": "body.usageDetails",
    "cost": "body.costDetails, else the costs of body.usage",
    "status": "body.level, body.metadata.cache_hit",
    "error_type": "body.level",
    "user": "userId of the trace",
    "team": "metadata of the trace",
    "session": "sessionId of the trace",
}

# LiteLLM's integration puts the clock before the id that its other callbacks report.
_BY_LITELLM = re.compile(r"time-\d\d-\d\d-\d\d-\d+_(.+)")


class Generation(msgspec.Struct, omit_defaults=True):
    """What the events of one generation say so far; a later value that is not null wins."""

    id: str
    at: int | None = None  # the time stamp of its last event
    trace_id: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    model: str | None = None
    provider: str | None = None  # as recorded: the model's name may have told it, and lost it there
    details: Tokens | None = None  # usageDetails
    usage: Tokens | None = None  # the older `usage`
    details_cost: str | None = None
    usage_cost: str | None = None
    level: str | None = None
    cached: bool | None = None
    created: bool = False  # its create was seen, so nothing older is to come

    @property
    def tokens(self) -> Tokens:
        """The newer field before the older one, also when it says 0."""
        return next((said for said in (self.details, self.usage) if said is not None), Tokens())

    @property
    def is_finished(self) -> bool:
        figures = (self.end_time, self.details, self.usage, self.details_cost, self.usage_cost)
        return self.level == "ERROR" or any(figure is not None for figure in figures)

    @property
    def is_whole(self) -> bool:
        return self.created and self.is_finished and (self.model is not None or bool(self.tokens))


class Trace(msgspec.Struct, omit_defaults=True):
    """Who called, as a trace says it."""

    id: str
    user: str | None = None
    team: str | None = None
    session: str | None = None
    tags: dict[str, str] = {}


class _Metadata(msgspec.Struct):
    cache_hit: Any = None


class _Observation(msgspec.Struct):
    id: Any = None
    type: Any = None
    traceId: Any = None
    startTime: Any = None
    endTime: Any = None
    model: Any = None
    usage: Named | Other = None
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


class _Event(msgspec.Struct):
    type: Any = None
    timestamp: Any = None
    body: msgspec.Raw = msgspec.Raw(b"{}")


def normalise(body: bytes, *, options: Options) -> Generator[None, None, Outcome]:
    """One batch; BadPayload when its envelope cannot be read."""
    outcome = Outcome(why=[] if options.explain else None)
    batch = _Batch(outcome)
    worked = 0
    for item in events(body):
        if worked and worked + len(item) > SLICE_BYTES:
            yield
            worked = 0
        batch.take(item)
        worked += len(item)
    yield from batch.finish()
    return outcome


def merge(known: Generation, later: Generation) -> Generation:
    """Both reports of one generation as one."""
    said = {name: value for name in later.__struct_fields__ if (value := getattr(later, name)) is not None}
    said["created"] = known.created or later.created
    return msgspec.structs.replace(known, **said)


def in_order(known: Generation, later: Generation) -> Generation:
    """Both, when requests may have overtaken one another or come again: their events' own clock says which was last."""
    if known.at is not None and later.at is not None and later.at < known.at:
        known, later = later, known
    return merge(known, later)


def merge_traces(known: Trace, later: Trace) -> tuple[Trace, int]:
    """Both, and how many tags were over the bound; a later value that is not null wins."""
    tags = dict(known.tags)
    left_out = sum(not put(tags, name, value) for name, value in later.tags.items())
    return Trace(
        known.id,
        user=later.user or known.user,
        team=later.team or known.team,
        session=later.session or known.session,
        tags=tags,
    ), left_out


def recorded(record: Inference) -> Generation:
    """What a record says of its generation."""
    tokens = Tokens(
        record.input_tokens,
        record.output_tokens,
        record.cache_read_tokens,
        record.cache_write_tokens,
        record.reasoning_tokens,
    )
    return Generation(
        id=record.request_id or "",
        trace_id=record.trace_id,
        start_time=record.start_time,
        end_time=record.end_time,
        model=record.request_model,
        provider=record.provider,
        details=tokens if tokens.stated else None,
        details_cost=record.cost,
        level="ERROR" if record.status == "error" else None,
        cached=record.status == "cached" or None,
        created=True,
    )


def call_of(generation: Generation, trace: Trace | None, identity: Identity | None = None) -> Call | None:
    """The generation as a call, None when it holds no model and no tokens; `identity` is what it was recorded under."""
    record = Inference(
        id=b"",
        source=NAME,
        request_id=generation.id,
        trace_id=generation.trace_id,
        start_time=generation.start_time,
        end_time=generation.end_time,
        provider=generation.provider or provider(None, generation.model),
        request_model=model_name(generation.model),
        cost=generation.usage_cost if generation.details_cost is None else generation.details_cost,
    )
    count_tokens(record, generation.tokens)
    if not is_call(record):
        return None
    if generation.level == "ERROR":
        fail(record)
    elif generation.cached:
        record.status = "cached"
    if trace is not None:
        attribute(record, trace)
    return Call(record, identity or _identity(record))


def attribute(record: Inference, trace: Trace) -> None:
    """Fill what the record does not say about who called."""
    record.user = record.user or trace.user
    record.team = record.team or trace.team
    record.session = record.session or trace.session
    record.tags = record.tags or dict(trace.tags)


class _Batch:
    """The events of one request, by what they are about."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._generations: dict[str, Generation] = {}
        self._traces: dict[str, Trace] = {}

    def take(self, raw: payload.Raw) -> None:
        index = self._outcome.received
        self._outcome.received += 1
        try:
            event = decoded(raw, _Event)
            is_generation = self._learn(event)
        except payload.UNREADABLE as error:
            if bytes(raw) != b"null":
                return self._outcome.reject(index, MALFORMED, payload.problem(error))
            is_generation = False
        except BadValue as error:
            return self._outcome.reject(index, error.reason, error.message)
        if not is_generation:
            self._outcome.ignored[NOT_AI] += 1
        return None

    def finish(self) -> Iterator[None]:
        """Whole generations are calls; the others and the traces are handed on."""
        for number, generation in enumerate(self._generations.values(), start=1):
            if number % TURN == 0:
                yield
            self._finish(generation)
        named = [trace for trace in self._traces.values() if trace != Trace(trace.id)]  # the others name nobody
        self._outcome.halves += [Half(TRACE, trace.id, msgspec.msgpack.encode(trace)) for trace in named]

    def _finish(self, generation: Generation) -> None:
        call = call_of(generation, self._traces.get(generation.trace_id or "")) if generation.is_whole else None
        if call is None:
            self._outcome.pending += 1
        else:
            why = None if self._outcome.why is None else explained(ORIGINS, call.record)
            self._outcome.add(call.record, call.identity, why)
        kind = GENERATION if call is None else WHOLE
        self._outcome.halves.append(Half(kind, generation.id, msgspec.msgpack.encode(generation)))

    def _learn(self, event: _Event) -> bool:
        """Whether the event is about a generation; its facts are then kept."""
        kind, _, verb = (text(event.type) or "").rpartition("-")
        if kind == TRACE:
            self._learn_trace(decoded(event.body, _TraceBody))
        if kind not in _CALLS and kind != "observation":
            return False
        said = decoded(event.body, _Observation)
        if kind == "observation" and (text(said.type) or "").lower() not in _CALLS:
            return False
        if (own_id := text(said.id)) is None:
            raise BadValue(MALFORMED, "body.id is missing")
        generation = _generation(own_id, said, at=instant(event.timestamp), created=verb == "create")
        if own_id in self._generations:
            self._generations[own_id] = merge(self._generations[own_id], generation)
            self._outcome.ignored[MERGED] += 1
        else:
            self._generations[own_id] = generation
        return True

    def _learn_trace(self, said: _TraceBody) -> None:
        if (own_id := text(said.id)) is None:
            return
        metadata = Metadata()
        metadata.label(said.tags if isinstance(said.tags, list) else ())
        metadata.learn(mapping(said.metadata))
        user = text(said.userId) or metadata.user
        if is_secret(user):
            user = None
            metadata.left_out += 1
        trace = Trace(
            own_id,
            user=user,
            team=metadata.team,
            session=text(said.sessionId) or metadata.session,
            tags=metadata.tags,
        )
        self._traces[own_id], left_out = merge_traces(self._traces.get(own_id) or Trace(own_id), trace)
        self._outcome.left_out += metadata.left_out + left_out


def events(body: bytes) -> Iterator[payload.Raw]:
    """The events of the body's batches, undecoded; BadPayload when it cannot be read, or is one object and no batch."""
    documents = payload.items(body)
    first = list(islice(documents, 2))
    is_alone = len(first) == 1 and body.lstrip()[:1] != b"["
    for document in chain(first, documents):
        members = payload.peek(document)
        if bytes(members.get("batch", b""))[:1] == b"[":
            yield from payload.array(members["batch"])
        elif is_alone and not {"type", "body"} <= members.keys():
            raise BadPayload("the body has no batch of events")
        else:  # an event of its own, or an item that is none
            yield document


def _generation(own_id: str, said: _Observation, *, at: int | None, created: bool) -> Generation:
    usage, details, costs = nested(said.usage, Named), mapping(said.usageDetails), mapping(said.costDetails)
    cache_hit = nested(said.metadata, _Metadata).cache_hit
    return Generation(
        id=own_id,
        at=at,
        trace_id=text(said.traceId),
        start_time=instant(said.startTime),
        end_time=instant(said.endTime),
        model=text(said.model),
        details=of_details(details),
        usage=of_named(usage),
        details_cost=cost_of_details(costs),
        usage_cost=cost_of_named(usage),
        level=text(said.level),
        cached=None if cache_hit is None else is_true(cache_hit),
        created=created,
    )


def _identity(record: Inference) -> Identity:
    """Langfuse's own id; in one that LiteLLM wrote stands the id that the provider gave."""
    written = _BY_LITELLM.fullmatch(record.request_id or "")
    if written is None:
        return of_call(record, own_id=record.request_id)
    found = litellm.identity(msgspec.structs.replace(record, request_id=written[1]))
    return found if record.status != "cached" else of_call(record, own_id=record.request_id)
