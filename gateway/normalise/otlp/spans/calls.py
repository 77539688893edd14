"""One span that is an AI call: its inference record, and what is needed to settle it among its neighbours."""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import NO_TOKENS, SpanCall
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import AttributeShape, Fields, Product, SpanDialect
from gateway.normalise.otlp.senders import caller_of
from gateway.normalise.otlp.shapes import CONTAINERS, own_shape
from gateway.normalise.otlp.span_rules import failed
from gateway.normalise.otlp.spans.counts import counts_of
from gateway.normalise.reading import operations, values
from gateway.normalise.reading.tokens import Tokens, set_counts
from spool.record import Inference

EMBEDDINGS, RERANK, EVERYTHING_ELSE = 0, 1, 2  # calls of one class may describe the same call
_CLASSES = {operations.EMBEDDINGS: EMBEDDINGS, operations.RERANK: RERANK}


def call_of(place: int, span: Span, shape: AttributeShape, product: Product, operation: str) -> SpanCall:
    """The call that a span describes by itself. BadValue when its figures cannot be."""
    attributes, dialect = span.attributes, product.spans
    if product.own_names:
        shape = own_shape(shape, product, attributes)
    more = _NOTHING
    if shape.containers or dialect.more is not None:
        more = _contained(attributes, shape, dialect)
    request_model = semconv.first_text(attributes, shape.request_model) or more.get("model")
    response_model = semconv.first_text(attributes, shape.response_model) if shape.response_model else None
    if request_model is None and response_model is None:
        request_model = semconv.plain_model(attributes)
    model = request_model or response_model
    provider = _provider(attributes, shape, dialect, model, more)
    tokens = counts_of(span, shape, dialect, provider, model, more)
    cost = semconv.cost_of(attributes, shape.cost) if shape.cost else None
    if cost is None and "cost" in more:
        cost = semconv.money(more["cost"], "cost")
    status, error_type = "ok", None
    if failed(span, shape) or (span.events and _is_raised(span, shape, tokens)):
        status, error_type = "error", semconv.error_type(attributes, _exception_type(span))
    request_id = semconv.first_text(attributes, shape.request_id) if shape.request_id else None
    response_id = shared_id = None
    if dialect.ids is not None:
        response_id, shared_id = dialect.ids(attributes)
    elif request_id is not None:
        response_id, shared_id = semconv.ids(attributes)
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
        caller_of(attributes, shape),
        response_id,
        shared_id,
        more.get("service_tier"),
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
    if stated is None and "provider" in more:
        stated = semconv.provider(more["provider"])
    if dialect.provider is not None:
        stated = dialect.provider(stated, model)
    return stated or (semconv.model_provider(model) if model is not None else None)


def _exception_type(span: Span) -> str | None:
    kinds = (values.text(event.attributes.get("exception.type")) for event in span.events)
    return next((kind for kind in kinds if kind), None)
