"""
Readings: the rules for spans with certain attribute names from one origin.

All decisions that depend only on names, sender and scope are made once per shape and origin. The models, the
provider, the operation and the region of a call depend on a few texts that vary little. They are read once
per combination of these texts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.admission import RULES, SCALAR
from gateway.normalise.otlp.conventions import OTEL, SENT_UNDER
from gateway.normalise.otlp.model import Attributes, Scope, Span
from gateway.normalise.otlp.product import AttributeNamesByField, RefineCall, SpanFields, TelemetryProduct
from gateway.normalise.otlp.shapes import DECLARED, shape_with_product_names
from gateway.normalise.otlp.span_rules import operation_by_span_name
from gateway.normalise.reading import operations
from gateway.normalise.reading.values import text_or_none
from spool.caches import remove_oldest_eighth
from spool.record import Inference

# Classes of operations. Only calls of one class may describe the same call.
EMBEDDINGS, RERANK, EVERYTHING_ELSE = 0, 1, 2
_CLASSES = {operations.EMBEDDINGS: EMBEDDINGS, operations.RERANK: RERANK}
_STATES_REGION = ("global.", "arn:")  # beginnings of model names that state a region
_LONGEST_SCOPE: Final = 64  # maximum characters of a scope; no scope that a rule names is longer
# Declared attributes whose values are not single texts or numbers. Those that decide models or region are all declared.
_NOT_SCALAR: Final = frozenset([name for name in DECLARED if RULES[name] is not SCALAR])
_MOST_NAMED: Final = 4096
_LONGEST_NAMED: Final = 512  # maximum characters of all texts of one cached combination


class SpanOrigin:
    """The sender and the scope of spans, as far as rules distinguish them. Equal origins are one object."""

    __slots__ = ("is_own_scope", "product", "refine")

    def __init__(
        self, product: TelemetryProduct, refine: tuple[RefineCall, ...], *, is_own_scope: bool
    ) -> None:
        self.product = product  # product by sender, OTEL if the sender is unknown
        self.refine = refine  # function that refines all calls of this sender and scope
        self.is_own_scope = is_own_scope


_origins: dict[tuple[TelemetryProduct, tuple[RefineCall, ...], bool], SpanOrigin] = {}


def span_origin_of_sender(sender: TelemetryProduct, scope: Scope) -> SpanOrigin:
    return _find_or_add_span_origin(sender, scope.name[: _LONGEST_SCOPE + 1])


@lru_cache(maxsize=1024)
def _find_or_add_span_origin(sender: TelemetryProduct, scope: str) -> SpanOrigin:
    product = sender if sender.names_spans else OTEL
    refine = [refine for beginning, refine in SENT_UNDER if scope.startswith(beginning)]
    if product.spans.refine_sent is not None:
        refine.append(product.spans.refine_sent)
    key = (product, tuple(refine), scope in product.scopes)
    if key not in _origins:
        _origins[key] = SpanOrigin(*key[:2], is_own_scope=key[2])
    return _origins[key]


@lru_cache(maxsize=_MOST_NAMED)
def _one_object_for_equal_values(*facts: Any) -> object:
    """
    Return one object for equal arguments. As a part of keys, the object is hashed faster than the arguments.
    """
    return object()


class SpanReadingPlan:
    """The decisions on how to read the spans of one shape, origin and product."""

    __slots__ = (
        "contains",
        "counted",
        "deciding",
        "guesses",
        "has_only_response_id",
        "has_only_totals",
        "names_key",
        "operation",
        "product",
        "refine",
        "shape",
        "shows_failure",
        "spans",
    )

    def __init__(
        self,
        attribute_names: AttributeNamesByField,
        origin: SpanOrigin,
        product: TelemetryProduct,
        attributes: Attributes,
    ) -> None:
        dialect, kind = product.spans, attribute_names.deciding_kind
        self.product = product
        # shape for calls, in which the product's own names replace the shared names
        shape = self.shape = (
            shape_with_product_names(attribute_names, product, attributes)
            if product.own_names
            else attribute_names
        )
        by_kind = None if kind is None else kind.operation
        self.operation = by_kind or dialect.operation or operation_by_span_name
        # whether the span names neither an operation nor a kind
        self.guesses = not shape.names_operation and kind is None and dialect.operation is None
        self.refine = origin.refine if dialect.refine is None else (dialect.refine, *origin.refine)
        # whether attributes hold several fields
        self.contains = bool(shape.containers) or dialect.more is not None
        # `_named` has a call's `CallNames` under this object and the values that `deciding` returns. Both are set at
        # the second span, because the attribute names of many spans never recur.
        self.names_key: object = None
        self.deciding: Callable[[Attributes], tuple[Any, ...]] | None = None
        self.spans = 0  # spans for which names were looked up, while nothing is remembered
        counted = (shape.input, shape.output, shape.cache_read, shape.cache_write, shape.reasoning)
        # pairs of an index in Tokens and the attributes that may state this count
        self.counted = tuple([(place, names) for place, names in enumerate(counted) if names])
        # whether only input and output can be counted
        self.has_only_totals = not (self.contains or shape.meters or shape.total or any(counted[2:]))
        # whether the provider's response id is the only id of the call
        self.has_only_response_id = (
            dialect.ids is None and len(shape.request_id) == 1 and shape.request_id[0] in semconv.RESPONSE_ID
        )
        # whether any attribute may show that the call failed
        self.shows_failure = bool(shape.error or shape.finish or any(kind.failure for kind in shape.kinds))

    def _remember_call_names_from_now_on(self, attributes: Attributes) -> None:
        shape = self.shape
        if (
            self.contains
            or self.operation is not operation_by_span_name
            or semconv.OPERATION_NAME not in attributes
        ):
            return
        names = [semconv.OPERATION_NAME, *shape.request_model, *shape.response_model, *shape.provider]
        if not shape.request_model and not shape.response_model:
            names += [name for name in semconv.PLAIN_MODEL if name in attributes]
        names += [*shape.region, *shape.address]
        if shape.region and semconv.CLOUD in attributes:
            names.append(semconv.CLOUD)
        if len(names) == 1 or not _NOT_SCALAR.isdisjoint(names):
            return
        fields = (shape.request_model, shape.response_model, shape.provider, shape.region, shape.address)
        self.names_key = _one_object_for_equal_values(self.product, *fields, *names)
        self.deciding = itemgetter(*names)

    def remembered_call_names(self, attributes: Attributes) -> CallNames | None:
        if self.deciding is None:
            self.spans += 1
            if self.spans == 2:
                self._remember_call_names_from_now_on(attributes)
            return None
        return _named.get((self.names_key, self.deciding(attributes)))


def find_or_add_reading(
    span: Span, attribute_names: AttributeNamesByField, origin: SpanOrigin
) -> SpanReadingPlan:
    product = _product_that_reads_span(span, attribute_names, origin)
    # without weak marks (attributes that identify a product on some spans), the product is the same for all spans
    key = (origin, product) if attribute_names.weak_marks else origin
    reading = attribute_names.readings.get(key)
    if reading is None:
        reading = SpanReadingPlan(attribute_names, origin, product, span.attributes)
        attribute_names.readings[key] = reading
    return reading


def _product_that_reads_span(
    span: Span, attribute_names: AttributeNamesByField, origin: SpanOrigin
) -> TelemetryProduct:
    sender, marked = origin.product, attribute_names.product
    if sender.scopes_above_marks and origin.is_own_scope:
        return sender
    if marked is not None and (marked.marks_above_sender or sender is OTEL):
        return marked
    if sender is OTEL:
        for product, holds in attribute_names.weak_marks:
            if holds(span):
                return product
    return sender


class CallNames(NamedTuple):
    record: Inference  # template record with source, operation, models, provider and region
    model: str | None
    kind: int  # number of the operation's class


_named: dict[tuple[object, tuple[Any, ...]], CallNames] = {}


def read_call_names(
    reading_plan: SpanReadingPlan, attributes: Attributes, operation: str, contained: SpanFields
) -> CallNames:
    """
    Read the models, provider, operation and region of a call. They are cached for calls of the kind with
    equal deciding texts. `contained`: fields that other attributes contain.
    """
    shape = reading_plan.shape
    request_model = semconv.first_text(attributes, shape.request_model) or contained.get("model")
    response_model = semconv.first_text(attributes, shape.response_model) if shape.response_model else None
    if request_model is None and response_model is None:
        request_model = semconv.model_in_unprefixed_attribute(attributes)
    model = request_model or response_model
    provider = _provider_of_call(reading_plan, attributes, model, contained)
    record = Inference(
        id=b"",
        source=reading_plan.product.source,
        operation=operation,
        request_model=request_model,
        response_model=response_model,
        provider=provider,
    )
    states_region = model is not None and model.startswith(_STATES_REGION)
    if states_region or shape.region or shape.address or "region" in contained:
        record.region = semconv.processing_region(
            attributes,
            shape.region,
            shape.address,
            provider=provider,
            model=model,
            answered=contained.get("region"),
        )
    named = CallNames(record, model, _CLASSES.get(operation, EVERYTHING_ELSE))
    if reading_plan.deciding is not None:
        _remember_names(reading_plan, reading_plan.deciding(attributes), named)
    return named


def _remember_names(reading_plan: SpanReadingPlan, values: tuple[Any, ...], named: CallNames) -> None:
    # Only texts are remembered, because numbers of different types may be equal. Without a model or an
    # operation in these texts, further attributes decide.
    if named.model is None or text_or_none(values[0]) is None or {*map(type, values)} != {str}:
        return
    if sum(map(len, values)) <= _LONGEST_NAMED:
        if len(_named) >= _MOST_NAMED:
            remove_oldest_eighth(_named)
        _named[reading_plan.names_key, values] = named


def _provider_of_call(
    reading_plan: SpanReadingPlan, attributes: Attributes, model: str | None, contained: SpanFields
) -> str | None:
    shape, dialect = reading_plan.shape, reading_plan.product.spans
    stated = semconv.first_provider(attributes, shape.provider) if shape.provider else None
    if stated is None and "provider" in contained:
        stated = semconv.normal_provider_name(contained["provider"])
    if dialect.provider is not None:
        stated = dialect.provider(stated, model)
    return stated or (semconv.provider_by_model_name(model) if model is not None else None)
