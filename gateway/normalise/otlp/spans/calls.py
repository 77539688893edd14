"""One span that is an AI call: its inference record, and what is needed to settle it among its neighbours."""

from __future__ import annotations

from msgspec import Struct

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.callers import NO_CALLER, Caller, caller_of
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import AttributeShape, Fields, Product, SpanDialect
from gateway.normalise.otlp.shapes import CONTAINERS
from gateway.normalise.otlp.span_rules import failed
from gateway.normalise.otlp.spans.counts import counts_of
from gateway.normalise.reading import operations, values
from gateway.normalise.reading.costs import known_cost
from gateway.normalise.reading.tokens import Tokens, set_counts
from spool.record import Inference

EMBEDDINGS, RERANK, EVERYTHING_ELSE = 0, 1, 2  # calls of one class may describe the same call
_CLASSES = {operations.EMBEDDINGS: EMBEDDINGS, operations.RERANK: RERANK}


# Without garbage collection, which costs more than the calls: whoever fills `inner` also empties it.
class SpanCall(Struct, gc=False):
    """Built when the span is read, settled when the whole payload was."""

    place: int
    record: Inference
    kind: int
    tokens: Tokens
    caller: Caller
    response_id: str | None
    shared_id: str | None
    run_id: str | None = None
    own_id: str | None = None  # of an answer from the source's cache
    resource_caller: Caller = NO_CALLER
    device: str | None = None  # as its resource names it
    inner: list[SpanCall] | None = None  # the nearest calls of the same class below
    twin_caller: Caller = NO_CALLER  # of dropped twins, the nearest first
    agent: str | None = None
    why: dict[str, str] | None = None
    repeats: str | None = None  # where reasons are asked for: why it was dropped
    reports_stream: bool = False  # it stands beside the span that began the call
    is_of_sdk: bool = False  # the provider's own library wrote it
    also: tuple[bytes, ...] = ()
    joins: tuple[bytes, ...] = ()
    is_linked: bool = False  # known by its place in the trace, too
    is_logged: bool = False  # by events, which have no id of it
    is_guess: bool = False  # it names neither an operation nor a kind
    service_tier: str | None = None  # as the answer of its provider states it

    @property
    def has_usage(self) -> bool:
        return self.tokens != NO_TOKENS

    @property
    def says_nothing(self) -> bool:
        """
        True if the span names no model, provider, id, cost or failure and counts nothing: an event inside a call.
        """
        record = self.record
        names_it = record.request_model or record.response_model or record.provider or record.request_id
        if record.charges:
            return False
        return names_it is None and not self.has_usage and record.cost is None and record.status == "ok"

    def count_as(self, tokens: Tokens) -> None:
        """Take over the counts of another report of the same call."""
        self.tokens = tokens
        set_counts(self.record, tokens)


NO_TOKENS = Tokens()


def call_of(place: int, span: Span, shape: AttributeShape, product: Product, operation: str) -> SpanCall:
    """The call that a span describes by itself. BadValue when its figures cannot be."""
    attributes, dialect = span.attributes, product.spans
    more = _NOTHING
    if shape.containers or dialect.more is not None:
        more = _contained(attributes, shape, dialect)
    model_names = shape.request_model if dialect.model is None else dialect.model
    request_model = semconv.first_text(attributes, model_names) or more.get("model")
    response_model = semconv.first_text(attributes, shape.response_model) if shape.response_model else None
    if request_model is None and response_model is None:
        request_model = semconv.plain_model(attributes)
    model = request_model or response_model
    provider = _provider(attributes, shape, dialect, model, more)
    tokens = counts_of(span, shape, dialect, provider, model, more)
    cost = semconv.cost_of(attributes, shape.cost) if shape.cost else None
    if cost is None and "cost" in more:
        cost = semconv.money(more["cost"], "cost")
    status, error_type, own_id = "ok", None, None
    if failed(span, shape) or (span.events and _is_raised(span, shape, tokens)):
        status, error_type = "error", semconv.error_type(attributes, _exception_type(span))
    elif dialect.cached_id is not None and (own_id := dialect.cached_id(attributes)) is not None:
        status = "cached"
    request_id = semconv.first_text(attributes, shape.request_id) if shape.request_id else None
    response_id = shared_id = None
    if request_id is not None or dialect.not_unique is not None:
        response_id, shared_id = _ids(attributes, dialect)
    if response_id is None and "response_id" in more:
        response_id = more["response_id"]
        request_id = request_id or response_id
    record = (
        Inference(  # of more than 15 names Python makes a dict first, which takes longer than all the rest
            id=b"",
            source=product.source,
            request_id=request_id,
            trace_id=span.trace_id,
            span_id=span.span_id,
            start_time=span.start_time,
            end_time=span.end_time,
            provider=provider,
            operation=operation,
            request_model=request_model,
            response_model=response_model,
            cost=cost,
            status=status,
            error_type=error_type,
        )
    )
    set_counts(record, tokens)
    if product.zero_cost_is_unknown:
        record.cost = known_cost(record, cost)
    if cost is None and shape.cost:
        record.charges = semconv.charges_of(attributes, shape.cost)
    if (
        shape.region
        or shape.address
        or "region" in more
        or (model is not None and model.startswith(_BEDROCK))
    ):
        record.region = semconv.region_of(
            attributes,
            shape.region,
            shape.address,
            provider=provider,
            model=model,
            answered=more.get("region"),
        )
    return SpanCall(
        place,
        record,
        _CLASSES.get(operation, EVERYTHING_ELSE),
        tokens,
        caller_of(attributes, shape, product),
        response_id,
        shared_id,
        values.text(attributes.get(dialect.run_id)) if dialect.run_id else None,
        own_id,
        service_tier=more.get("service_tier"),
    )


_BEDROCK = ("global.", "arn:")  # beginnings of its models that say where they are served
_NOTHING: Fields = {}


def _is_raised(span: Span, shape: AttributeShape, tokens: Tokens) -> bool:
    """True if nothing came of the call but an exception, whatever its status says (LangSmith's is good)."""
    return (
        tokens == NO_TOKENS
        and semconv.first(span.attributes, shape.response_model + shape.request_id) is None
    )


def _contained(attributes: Attributes, shape: AttributeShape, dialect: SpanDialect) -> Fields:
    """Read the fields inside attributes that hold several figures."""
    fields = dict(dialect.more(attributes)) if dialect.more is not None else {}
    for name in shape.containers:
        for field, value in CONTAINERS[name](attributes[name]).items():
            if not fields.get(field):  # a 0 says less than any other figure
                fields[field] = value
    return fields


def _provider(
    attributes: Attributes, shape: AttributeShape, dialect: SpanDialect, model: str | None, more: Fields
) -> str | None:
    stated = semconv.provider_of(attributes, shape.provider) if shape.provider else None
    if dialect.model_names_provider and model is not None:
        stated = semconv.model_provider(model) or stated
    if stated is None and "provider" in more:
        stated = semconv.provider(more["provider"])
    return stated or dialect.provider or (semconv.model_provider(model) if model is not None else None)


def _ids(attributes: Attributes, dialect: SpanDialect) -> tuple[str | None, str | None]:
    """The provider's id of the call, and an id that others may share."""
    response_id = semconv.first_text(attributes, dialect.response_id)
    if response_id is None:
        return None, semconv.first_text(attributes, dialect.shared_id)
    if dialect.not_unique is not None and attributes.get(dialect.not_unique) == response_id:
        return None, response_id
    return response_id, None


def _exception_type(span: Span) -> str | None:
    kinds = (values.text(event.attributes.get("exception.type")) for event in span.events)
    return next((kind for kind in kinds if kind), None)
