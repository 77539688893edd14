"""One span that is an AI call, read into its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import NO_TOKENS, SpanCall
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, SpanFields
from gateway.normalise.otlp.senders import stated_caller
from gateway.normalise.otlp.shapes import CONTAINERS
from gateway.normalise.otlp.span_rules import (
    ERROR_CODE,
    has_bedrock_input_count_excluding_cache,
    is_failed_span,
)
from gateway.normalise.otlp.spans.readings import CallNames, SpanReadingPlan, read_call_names
from gateway.normalise.reading import values
from gateway.normalise.reading.meters import keep_valid_meters, merge_meters
from gateway.normalise.reading.tokens import (
    NUMBERS,
    PARTS,
    Tokens,
    choose_input_and_output_with_total,
    normalise_counts,
    set_token_counts,
    sum_of_known,
    usage_if_consistent,
    with_missing_reasoning,
    with_rest_of_total,
)
from spool.record import Inference

_FIELDS = frozenset(NUMBERS)
_FIGURES: Final = len(Tokens._fields)


def read_token_counts(
    span: Span, reading_plan: SpanReadingPlan, provider: str | None, model: str | None, contained: SpanFields
) -> Tokens:
    """
    Return the token counts of a span, without looking at other spans. `contained` holds the fields of the
    objects in its attributes. Raises BadValue.
    """
    attributes, shape, dialect = span.attributes, reading_plan.shape, reading_plan.product.spans
    # tuple.__new__, because the constructor with names takes three times as long
    stated = tuple.__new__(Tokens, semconv.first_count_of_each(attributes, reading_plan.counted, _FIGURES))
    if reading_plan.has_only_totals:
        return stated
    if shape.meters:
        stated = stated._replace(meters=read_meters(attributes, shape))
    if contained:
        whole = contained.get("usage")
        if whole is not None and (fields := usage_if_consistent(whole, stated)) is not None:
            return fields
        stated = _with_counts_of_container(stated, contained)
    total = _reported_total_or_none(attributes, shape, contained) if shape.total or contained else None
    tokens, without_cache = stated, False
    if not (stated.cache_read is None and stated.cache_write is None and stated.reasoning is None):
        without_cache = (dialect.without_cache or has_bedrock_input_count_excluding_cache)(
            span, provider, model
        )
        without_reasoning = dialect.without_reasoning is not None and dialect.without_reasoning(span)
        tokens = normalise_counts(
            stated, total=total, without_cache=without_cache, without_reasoning=without_reasoning
        )
    if total is None:
        return tokens
    if tokens.input is None or tokens.output is None:
        return with_rest_of_total(tokens, total)
    if tokens.input + tokens.output == total:
        return tokens
    if len(shape.input) > 1 or len(shape.output) > 1 or contained:
        inputs, outputs = ([attributes[name] for name in names] for names in (shape.input, shape.output))
        if (
            "input" in contained
            and "output" in contained
            and semconv.first_value(attributes, shape.total) is not None
        ):
            # the total of a usage object always agrees with the sums in the same object
            inputs.append(contained["input"])
            outputs.append(contained["output"])
        tokens = choose_input_and_output_with_total(
            tokens, total, inputs, outputs, without_cache=without_cache
        )
    is_gemini = semconv.is_gemini(provider, model)
    return with_missing_reasoning(tokens, total) if is_gemini else with_rest_of_total(tokens, total)


def _with_counts_of_container(stated: Tokens, contained: SpanFields) -> Tokens:
    filled: dict[str, Any] = {}
    for field, value in contained.items():
        if field not in _FIELDS:
            continue
        number = getattr(stated, field)
        if not number and (number is None or field in PARTS):
            counted = semconv.parse_count_if_number(value, field)
            if counted is not None:
                filled[field] = counted
    container_meters = contained.get("meters")
    if container_meters:
        stated = stated._replace(meters=merge_meters(stated.meters, container_meters))
    return stated._replace(**filled) if filled else stated


def read_meters(
    attributes: Attributes, attribute_names: AttributeNamesByField
) -> dict[str, int | str] | None:
    """Return the meters of a span, or None if all are 0 or invalid."""
    numbers = keep_valid_meters({meter: attributes[name] for meter, name in reversed(attribute_names.meters)})
    return numbers if numbers and any(numbers.values()) else None


def _reported_total_or_none(
    attributes: Attributes, attribute_names: AttributeNamesByField, contained: SpanFields
) -> int | None:
    """Return the reported total of tokens, or None if it is impossible, because totals are never billed."""
    try:
        total = semconv.first_count(attributes, attribute_names.total)
        return semconv.parse_count_if_number(contained.get("total"), "total") if total is None else total
    except values.BadValue:
        return None


def merge_token_counts_of_reports(kept_counts: Tokens, duplicate_counts: Tokens) -> Tokens:
    """
    Merge the counts of two reports of one call. The fuller set of counts is used.

    If both sets agree on input and output, parts that the fuller set omits or states as 0 come from the other
    set.
    """
    first, second = (
        (duplicate_counts, kept_counts)
        if _is_more_complete(duplicate_counts, kept_counts)
        else (kept_counts, duplicate_counts)
    )
    if (first.input, first.output) != (second.input, second.output):
        return first
    if first.meters is None and second.meters is not None:
        first = first._replace(meters=second.meters)
    missing = {part: getattr(second, part) for part in PARTS if not getattr(first, part)}
    return _with_parts_if_plausible(
        first, {part: number for part, number in missing.items() if number is not None}
    )


def sum_token_counts(parts: Sequence[Tokens]) -> Tokens:
    """Return the sums of the counts. No element of `parts` may state meters."""
    sums = {field: sum_of_known(*(getattr(tokens, field) for tokens in parts)) for field in NUMBERS}
    return Tokens(meters=None, **sums)


def _is_more_complete(tokens: Tokens, other: Tokens) -> bool:
    fullness, other_fullness = _completeness(tokens), _completeness(other)
    is_larger = tokens.output == other.output and (tokens.input or 0) > (other.input or 0)
    return fullness > other_fullness or (fullness == other_fullness and is_larger)


def _completeness(tokens: Tokens) -> tuple[int, int]:
    """
    Return how complete counts are: the number of counts above 0, then of known counts. A 0 may mean unknown.
    """
    return sum(map(bool, tokens)), tokens.number_of_known_counts()


def _with_parts_if_plausible(tokens: Tokens, parts: dict[str, Any]) -> Tokens:
    combined = tokens._replace(**parts) if parts else tokens
    written = combined.cache_write or 0
    if (combined.cache_read or 0) + written > (combined.input or 0):
        return tokens
    if (combined.reasoning or 0) > (combined.output or 0) or (combined.cache_write_1h or 0) > written:
        return tokens
    return combined


# msgspec adds `__copy__` to its classes without declaring it to type checkers.
_copied: Final[Callable[[Inference], Inference]] = Inference.__copy__  # type: ignore[attr-defined]
_NOTHING: SpanFields = {}


def read_call_of_span(
    item_index: int, span: Span, reading_plan: SpanReadingPlan, operation: str, known_names: CallNames | None
) -> SpanCall:
    """
    Read a span that is a call. `known_names` has the models and the provider if they are known from an equal span.
    Raises BadValue if numbers of the span are impossible.
    """
    attributes, shape, dialect = span.attributes, reading_plan.shape, reading_plan.product.spans
    contained = _fields_of_containers(attributes, shape, dialect) if reading_plan.contains else _NOTHING
    template, model, kind = known_names or read_call_names(reading_plan, attributes, operation, contained)
    tokens = read_token_counts(span, reading_plan, template.provider, model, contained)
    cost = semconv.reported_cost(attributes, shape.cost) if shape.cost else None
    if cost is None and "cost" in contained:
        cost = semconv.parse_amount_if_number(contained["cost"], "cost")
    request_id = semconv.first_text(attributes, shape.request_id) if shape.request_id else None
    response_id = shared_id = None
    if reading_plan.has_only_response_id:
        response_id = request_id
    elif dialect.ids is not None:
        response_id, shared_id = dialect.ids(attributes)
    elif request_id is not None:
        response_id, shared_id = semconv.response_id_or_id_of_several_calls(attributes)
    if response_id is None and "response_id" in contained:
        response_id = contained["response_id"]
        request_id = request_id or response_id
    record = _copied(template)
    record.request_id = request_id
    record.trace_id = span.trace_id
    record.span_id = span.span_id
    record.start_time = span.start_time
    record.end_time = span.end_time
    if (
        span.status_code == ERROR_CODE
        or (reading_plan.shows_failure and is_failed_span(span, shape))
        or (span.events and _has_raised_exception(span, shape, tokens))
    ):
        record.status, record.error_type = (
            "error",
            semconv.machine_readable_error(attributes, _first_exception_type(span)),
        )
    if cost is not None:
        record.cost = cost
    elif shape.cost:
        record.charges = semconv.reported_charges(attributes, shape.cost)
    set_token_counts(record, tokens)
    call = SpanCall(
        item_index,
        record,
        kind,
        tokens,
        stated_caller(attributes, shape),
        response_id,
        shared_id,
        contained.get("service_tier"),
    )
    if shape.provider_request_id:
        call.provider_request_id = semconv.first_provider_request_id(attributes, shape.provider_request_id)
    return call


def _has_raised_exception(span: Span, attribute_names: AttributeNamesByField, tokens: Tokens) -> bool:
    """
    Return whether a call failed with an exception: it has no tokens, response model or id. LangSmith reports
    the status "ok" for such calls.
    """
    return (
        tokens == NO_TOKENS
        and semconv.first_value(span.attributes, attribute_names.response_model + attribute_names.request_id)
        is None
    )


def _fields_of_containers(
    attributes: Attributes, attribute_names: AttributeNamesByField, dialect: SpanDialect
) -> SpanFields:
    fields = dict(dialect.more(attributes)) if dialect.more is not None else {}
    for name in attribute_names.containers:
        for field, value in CONTAINERS[name](attributes[name]).items():
            if not fields.get(field):  # a 0 gives way to the value of another container
                fields[field] = value
    return fields


def _first_exception_type(span: Span) -> str | None:
    kinds = (values.text_or_none(event.attributes.get("exception.type")) for event in span.events)
    return next((kind for kind in kinds if kind), None)
