"""One span that is an AI call, read into its record."""

from __future__ import annotations

from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import NO_TOKENS, SpanCall
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import AttributeShape, Fields, Product, SpanDialect
from gateway.normalise.otlp.senders import caller_of
from gateway.normalise.otlp.shapes import CONTAINERS, own_shape
from gateway.normalise.otlp.span_rules import bedrock_scope, failed
from gateway.normalise.reading import operations, values
from gateway.normalise.reading.meters import merged, of_numbers
from gateway.normalise.reading.tokens import (
    NUMBERS,
    PARTS,
    Tokens,
    agreeing,
    of_whole,
    set_counts,
    settle,
    with_thoughts,
)
from spool.record import Inference

_FIELDS = frozenset(NUMBERS)


def counts_of(
    span: Span,
    shape: AttributeShape,
    dialect: SpanDialect,
    provider: str | None,
    model: str | None,
    contained: Fields,
) -> Tokens:
    """
    Return the counts of a call from its own span. `contained` holds the fields of its containers. Raises BadValue.
    """
    attributes = span.attributes
    first_count = semconv.first_count
    stated = tuple.__new__(
        Tokens,
        (  # tuple.__new__ is used because the named constructor takes three times as long
            first_count(attributes, shape.input) if shape.input else None,
            first_count(attributes, shape.output) if shape.output else None,
            first_count(attributes, shape.cache_read) if shape.cache_read else None,
            first_count(attributes, shape.cache_write) if shape.cache_write else None,
            first_count(attributes, shape.reasoning) if shape.reasoning else None,
            None,
            None,
        ),
    )
    if shape.meters:
        stated = stated._replace(meters=meters_of(attributes, shape))
    if contained:
        whole = contained.get("usage")
        if whole is not None and (fields := of_whole(whole, stated)) is not None:
            return fields
        stated = _completed(stated, contained)
    total = _total(attributes, shape, contained) if shape.total or contained else None
    tokens, without_cache = stated, False
    if not (stated.cache_read is None and stated.cache_write is None and stated.reasoning is None):
        without_cache = (dialect.without_cache or bedrock_scope)(span, provider, model)
        without_reasoning = dialect.without_reasoning is not None and dialect.without_reasoning(span)
        tokens = settle(stated, total=total, without_cache=without_cache, without_reasoning=without_reasoning)
    if (
        total is None
        or tokens.input is None
        or tokens.output is None
        or tokens.input + tokens.output == total
    ):
        return tokens
    if len(shape.input) > 1 or len(shape.output) > 1 or contained:
        inputs, outputs = ([attributes[name] for name in names] for names in (shape.input, shape.output))
        if (
            "input" in contained
            and "output" in contained
            and semconv.first(attributes, shape.total) is not None
        ):
            # add the container's input only if an attribute states the total, because a container's own total
            # always agrees with its own sums
            inputs.append(contained["input"])
            outputs.append(contained["output"])
        tokens = agreeing(tokens, total, inputs, outputs, without_cache=without_cache)
    return with_thoughts(tokens, total) if semconv.is_gemini(provider, model) else tokens


def _completed(stated: Tokens, contained: Fields) -> Tokens:
    """Fill in counts from a container if the attributes omit them or state 0."""
    filled: dict[str, Any] = {}
    for field, value in contained.items():
        if field not in _FIELDS:
            continue
        number = getattr(stated, field)
        if not number and (number is None or field in PARTS):
            counted = semconv.count(value, field)
            if counted is not None:
                filled[field] = counted
    container_meters = contained.get("meters")
    if container_meters:
        stated = stated._replace(meters=merged(stated.meters, container_meters))
    return stated._replace(**filled) if filled else stated


def meters_of(attributes: Attributes, shape: AttributeShape) -> dict[str, int | str] | None:
    """Return the stated meters of usage other than plain text tokens, or None if all are 0."""
    numbers = of_numbers({meter: attributes[name] for meter, name in reversed(shape.meters)})
    return numbers if numbers and any(numbers.values()) else None


def _total(attributes: Attributes, shape: AttributeShape, contained: Fields) -> int | None:
    """Return the reported total. An impossible total counts as missing, because totals are never billed."""
    try:
        total = semconv.first_count(attributes, shape.total)
        return semconv.count(contained.get("total"), "total") if total is None else total
    except values.BadValue:
        return None


def fuller(kept: Tokens, twin: Tokens) -> Tokens:
    """
    Return the fuller of two sets of counts. If both are equally full and have the same output, return the set
    with the larger input.

    If both sets agree on input and output, parts that the fuller set omits or states as 0 come from the other set.
    """
    first, second = (twin, kept) if _is_fuller(twin, kept) else (kept, twin)
    if (first.input, first.output) != (second.input, second.output):
        return first
    if first.meters is None and second.meters is not None:
        first = first._replace(meters=second.meters)
    missing = {part: getattr(second, part) for part in PARTS if not getattr(first, part)}
    return _add_parts(first, {part: number for part, number in missing.items() if number is not None})


def _is_fuller(tokens: Tokens, other: Tokens) -> bool:
    fullness, other_fullness = _fullness(tokens), _fullness(other)
    is_larger = tokens.output == other.output and (tokens.input or 0) > (other.input or 0)
    return fullness > other_fullness or (fullness == other_fullness and is_larger)


def _fullness(tokens: Tokens) -> tuple[int, int]:
    """
    Return the number of counts above 0, then the number of stated counts. A 0 may mean that the sender does
    not know the count.
    """
    return sum(map(bool, tokens)), tokens.reported()


def _add_parts(tokens: Tokens, parts: dict[str, Any]) -> Tokens:
    """Add parts to the counts, unless a part would exceed its whole."""
    combined = tokens._replace(**parts) if parts else tokens
    written = combined.cache_write or 0
    if (combined.cache_read or 0) + written > (combined.input or 0):
        return tokens
    if (combined.reasoning or 0) > (combined.output or 0) or (combined.cache_write_1h or 0) > written:
        return tokens
    return combined


# Classes of operations. Only calls of the same class may describe the same call.
EMBEDDINGS, RERANK, EVERYTHING_ELSE = 0, 1, 2
_CLASSES = {operations.EMBEDDINGS: EMBEDDINGS, operations.RERANK: RERANK}


def call_of(place: int, span: Span, shape: AttributeShape, product: Product, operation: str) -> SpanCall:
    """Return the call that a span describes by itself. Raises BadValue if its figures are impossible."""
    attributes, dialect = span.attributes, product.spans
    if product.own_names:
        shape = own_shape(shape, product, attributes)
    contained = _NOTHING
    if shape.containers or dialect.more is not None:
        contained = _contained(attributes, shape, dialect)
    request_model = semconv.first_text(attributes, shape.request_model) or contained.get("model")
    response_model = semconv.first_text(attributes, shape.response_model) if shape.response_model else None
    if request_model is None and response_model is None:
        request_model = semconv.plain_model(attributes)
    model = request_model or response_model
    provider = _provider(attributes, shape, dialect, model, contained)
    tokens = counts_of(span, shape, dialect, provider, model, contained)
    cost = semconv.cost_of(attributes, shape.cost) if shape.cost else None
    if cost is None and "cost" in contained:
        cost = semconv.money(contained["cost"], "cost")
    status, error_type = "ok", None
    if failed(span, shape) or (span.events and _is_raised(span, shape, tokens)):
        status, error_type = "error", semconv.error_type(attributes, _exception_type(span))
    request_id = semconv.first_text(attributes, shape.request_id) if shape.request_id else None
    response_id = shared_id = None
    if dialect.ids is not None:
        response_id, shared_id = dialect.ids(attributes)
    elif request_id is not None:
        response_id, shared_id = semconv.ids(attributes)
    if response_id is None and "response_id" in contained:
        response_id = contained["response_id"]
        request_id = request_id or response_id
    # A call with more than 15 keyword arguments is slow, because Python creates a dict first, so the other
    # fields are set afterwards.
    record = Inference(
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
    set_counts(record, tokens)
    if cost is None and shape.cost:
        record.charges = semconv.charges_of(attributes, shape.cost)
    states_region = model is not None and model.startswith(_STATES_REGION)
    if states_region or shape.region or shape.address or "region" in contained:
        record.region = semconv.region_of(
            attributes,
            shape.region,
            shape.address,
            provider=provider,
            model=model,
            answered=contained.get("region"),
        )
    return SpanCall(
        place,
        record,
        _CLASSES.get(operation, EVERYTHING_ELSE),
        tokens,
        caller_of(attributes, shape),
        response_id,
        shared_id,
        contained.get("service_tier"),
    )


_STATES_REGION = ("global.", "arn:")  # prefixes of model names that state the region
_NOTHING: Fields = {}


def _is_raised(span: Span, shape: AttributeShape, tokens: Tokens) -> bool:
    """
    Return True if the call returned only an exception. The status does not show this, because
    LangSmith reports "ok".
    """
    return (
        tokens == NO_TOKENS
        and semconv.first(span.attributes, shape.response_model + shape.request_id) is None
    )


def _contained(attributes: Attributes, shape: AttributeShape, dialect: SpanDialect) -> Fields:
    """Return the fields inside attributes that hold several counts."""
    fields = dict(dialect.more(attributes)) if dialect.more is not None else {}
    for name in shape.containers:
        for field, value in CONTAINERS[name](attributes[name]).items():
            if not fields.get(field):  # a 0 is replaced, because any other figure is more informative
                fields[field] = value
    return fields


def _provider(
    attributes: Attributes,
    shape: AttributeShape,
    dialect: SpanDialect,
    model: str | None,
    contained: Fields,
) -> str | None:
    stated = semconv.provider_of(attributes, shape.provider) if shape.provider else None
    if stated is None and "provider" in contained:
        stated = semconv.provider(contained["provider"])
    if dialect.provider is not None:
        stated = dialect.provider(stated, model)
    return stated or (semconv.model_provider(model) if model is not None else None)


def _exception_type(span: Span) -> str | None:
    kinds = (values.text(event.attributes.get("exception.type")) for event in span.events)
    return next((kind for kind in kinds if kind), None)
