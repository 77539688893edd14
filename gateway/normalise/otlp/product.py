"""
Declarations of products: how to recognize a product's telemetry and how to read its spans, logs and metrics.

A product's module holds one `TelemetryProduct`. `products.PRODUCTS` lists them in order of precedence, and
the OTLP
readers work from that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Attributes, LogRecord, Span
from gateway.normalise.outcome import ReadOutcome
from gateway.normalise.reading import operations
from gateway.normalise.reading.tokens import (
    Tokens,
    choose_input_and_output_with_total,
    normalise_counts,
    with_missing_reasoning,
    with_rest_of_total,
)
from spool.record import Inference

Names = tuple[str, ...]
# fields that a reader of several values may return: input, output, cache_read, cache_write, reasoning, total,
# cost, model, provider
SpanFields = Mapping[str, Any]

TOKEN_UNIT = "{token}"
MONEY_UNIT = "USD"


class AttributeNamesByField(Struct, frozen=True, kw_only=True):
    """
    The attribute names of an item by the record field that they may fill, known before any value is read.
    `shapes` builds it. `weak_marks`: products that a name marks only if a test of the span agrees.
    """

    # Names of attributes by field; the first name takes precedence.
    input: Names = ()
    output: Names = ()
    cache_read: Names = ()
    cache_write: Names = ()
    reasoning: Names = ()
    total: Names = ()
    request_model: Names = ()
    response_model: Names = ()
    provider: Names = ()
    request_id: Names = ()
    provider_request_id: Names = ()
    cost: Names = ()
    region: Names = ()
    address: Names = ()
    error: Names = ()
    finish: Names = ()
    user: Names = ()
    email: Names = ()
    team: Names = ()
    session: Names = ()
    api_key: Names = ()
    agent: Names = ()
    run: Names = ()
    parent_run: Names = ()
    containers: Names = ()
    meters: tuple[tuple[str, str], ...] = ()  # pairs of a meter and the attribute that reports it
    named_tags: tuple[tuple[str, Names], ...] = ()  # pairs of a tag and the attributes that may state it
    # True if a name may hold tags that the sender chose (see `shapes.attributes_with_tags`)
    has_metadata: bool = False
    # first product in order of precedence that one of the attribute names marks
    product: TelemetryProduct | None = None
    weak_marks: tuple[tuple[TelemetryProduct, Callable[[Span], bool]], ...] = ()
    kinds: tuple[KindAttribute, ...] = ()
    # first of `kinds` with an `operation`; its value decides whether a span is a call
    deciding_kind: KindAttribute | None = None
    taken_by: tuple[TelemetryProduct, ...] = ()  # products that may read the whole item themselves
    names_tool: bool = False
    names_operation: bool = False  # if False, the usage of a span decides whether the span is a call
    names_end_user: bool = False
    names_ai: bool = False  # True if one of the names is that of a model or a token count
    # product -> shape with the names that only this product uses, cached on first use
    own: dict[TelemetryProduct, AttributeNamesByField]
    # cache of the readings of spans with these attribute names (see `spans.readings`)
    readings: dict[Any, Any]

    @property
    def token_count_names(self) -> Names:
        return self.input + self.output + self.cache_read + self.cache_write + self.reasoning

    @property
    def has_span_kind(self) -> bool:
        return self.names_tool or bool(self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNames:
    input: Names
    output: Names
    cache_read: Names
    cache_write: Names = ()
    reasoning: Names = ()

    def read_counts(self, attributes: Attributes) -> Tokens:
        """Return the counts under these names. Raises BadValue if a count is impossible."""
        first_count = semconv.first_count
        return Tokens(
            first_count(attributes, self.input),
            first_count(attributes, self.output),
            first_count(attributes, self.cache_read),
            first_count(attributes, self.cache_write),
            first_count(attributes, self.reasoning),
        )


_STEPS = frozenset(
    {
        "agent",
        "tool",
        "chain",
        "workflow",
        "task",
        "run",
        "span",
        "event",
        "retriever",
        "prompt",
        "guardrail",
        "parser",
        "memory",
        "unknown",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindAttribute:
    """Declaration of an attribute that states a span's kind, for any sender."""

    attribute: str
    # values in lower case that mark a span as one around calls
    around: frozenset[str] = frozenset({"tool", "agent"})
    # Values that mark spans which are never calls, even with counts, because they repeat the calls below
    # them. Spans with other values and counts are shown as unrecognized. None means every value except the
    # values of calls.
    steps: frozenset[str] | None = _STEPS
    # Decides which spans are calls. It takes precedence over the operation name.
    operation: Callable[[Span, AttributeNamesByField], str | None] | None = None
    failure: tuple[str, str] | None = None  # an attribute and the value that marks a failed call


RefineCall = Callable[[Span, SpanCall], None]


class SpanRole(NamedTuple):
    """The role of a span that is not a call, for spans on which no attribute states the role."""

    is_agent: bool = False
    # True if the span starts a stream. The call is the sibling span that reports the result.
    begins_stream: bool = False
    # kind of operation whose usage the span repeats, such as "model_call" for a sibling call
    usage_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDialect:
    """A product's rules for spans that attribute names cannot express."""

    # Returns the operation of a call. Default: `span_rules.operation_by_span_name`.
    operation: Callable[[Span, AttributeNamesByField], str | None] | None = None
    # Returns whether input excludes the cache, by provider and model. Default:
    # `span_rules.has_bedrock_input_count_excluding_cache`.
    without_cache: Callable[[Span, str | None, str | None], bool] | None = None
    without_reasoning: Callable[[Span], bool] | None = None
    # function that reads fields that need several attributes
    more: Callable[[Attributes], SpanFields] | None = None
    # Returns the provider from the stated one and the model. Default: the stated provider, or else the
    # provider of the model.
    provider: Callable[[str | None, str | None], str | None] | None = None
    # Returns the provider's id of the call, and an id that several calls may share. Default:
    # `semconv.response_id_or_id_of_several_calls`.
    ids: Callable[[Attributes], tuple[str | None, str | None]] | None = None
    refine: RefineCall | None = None  # function that handles special cases and adds dedup keys of the call
    # function like `refine`, applied to every call from the product's scopes, even if the span has
    # another product's marks
    refine_sent: RefineCall | None = None
    role: Callable[[Span, AttributeNamesByField], SpanRole] | None = None


def accept_everything(*_: object) -> bool:
    """Return True. Used as a hook if a condition holds for everything that a product sends."""
    return True


def _provider_by_model(attributes: Attributes, model: str | None) -> str | None:
    return semconv.provider_by_model_name(model) if model else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDialect:
    """A product's rules for reading the calls in its log events."""

    model: Names = ("model",)
    response_model: Names = ()
    provider: Names = ()
    unnamed_provider: Callable[[Attributes, str | None], str | None] = _provider_by_model
    tokens: TokenNames
    # function that adds token counts from further attributes
    complete: Callable[[Attributes, Tokens], Tokens] | None = None
    total: Names = ()
    # function that returns whether the input count of a provider excludes the cache
    without_cache: Callable[[str | None], bool] | None = None
    without_reasoning: bool = False
    operation: str = operations.CHAT
    response_id: Names = ()
    shared_id: Names = ()
    provider_request_id: Names = ()  # attributes with the provider's id of the request, besides those of `semconv`
    own_id: Names = ()  # attributes with the id of a single report, which differs from the id of the call
    call_id: Names = ()  # attributes with ids that every report of the call has, used as further dedup keys
    own_span: bool = False  # True if trace and span id belong to the call, not to an enclosing span

    def provider_or_default(self, attributes: Attributes, model: str | None) -> str | None:
        stated = semconv.first_provider(attributes, self.provider)
        return stated or self.unnamed_provider(attributes, model)

    def read_tokens(self, attributes: Attributes, provider: str | None, model: str | None) -> Tokens:
        """Return the tokens of one call. Raises BadValue if a count is impossible."""
        stated = self.tokens.read_counts(attributes)
        if self.complete is not None:
            stated = self.complete(attributes, stated)
        total = semconv.first_count(attributes, self.total)
        without_cache = self.without_cache is not None and self.without_cache(provider)
        tokens = normalise_counts(
            stated, total=total, without_cache=without_cache, without_reasoning=self.without_reasoning
        )
        if total is None:
            return tokens
        if tokens.input is None or tokens.output is None:
            return with_rest_of_total(tokens, total)
        if tokens.input + tokens.output == total:
            return tokens
        inputs = [attributes[name] for name in self.tokens.input if name in attributes]
        outputs = [attributes[name] for name in self.tokens.output if name in attributes]
        if len(inputs) > 1 or len(outputs) > 1:
            tokens = choose_input_and_output_with_total(
                tokens, total, inputs, outputs, without_cache=without_cache
            )
        is_gemini = semconv.is_gemini(provider, model)
        return with_missing_reasoning(tokens, total) if is_gemini else with_rest_of_total(tokens, total)


Links = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """Declaration of an event that reports calls."""

    dialect: LogDialect
    failed: bool = False
    timed: bool = True  # True if the event's duration_ms is the duration of the call
    is_call: Callable[[Attributes], bool] = lambda attributes: True
    # True if the event adds to the call of another event, so its own id is not the id of the call
    adds_to_call: bool = False
    is_final: bool = False  # True if the event's cost replaces an earlier cost
    # function that handles special cases of this event
    refine: Callable[[Attributes, Inference], None] | None = None
    # Returns pairs of an own key and a key of another report, so that other reports of the call are
    # recognized (see spool.identity).
    links: Callable[[Attributes, Inference], Links] | None = None


class LogRecordPairs(Protocol):
    """
    Buffer for the log records of a product that logs each call twice: in its own event, and in the event of
    the GenAI conventions. It holds the records of one payload, and then pairs them.
    """

    def hold_product_event(self, item_index: int, record: LogRecord, event: LogEvent) -> None:
        """Hold a record of the product's own event until `complete_calls_from_genai_events`."""

    def hold_genai_event_if_it_completes_call(self, record: LogRecord) -> bool:
        """
        Hold a record of the GenAI conventions' event until `complete_calls_from_genai_events`. Return False if
        the record cannot complete a call.
        """

    def complete_calls_from_genai_events(self) -> Iterator[tuple[int, LogRecord, LogEvent]]:
        """Return all held calls. Each is completed from the second record that the product logged for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """
    A metric that counts tokens or money.

    The token type is part of the metric name (`token_type`) or the value of an attribute (the first of
    `type_keys` on the point). `types` translates that value. A value without a translation is kept, because
    it may be a subset such as `audio`.
    """

    unit: str = TOKEN_UNIT
    token_type: str | None = None
    type_keys: Names = ()
    types: Mapping[str, str] = field(default_factory=dict)
    divisor: Decimal = Decimal(1)
    # Name of a group of families that may count the same tokens. If a meter sends several families of a
    # group, only the first family that arrives counts.
    one_of: str | None = None
    # True if this family counts only if no other family of its group is reported, in whatever order they arrive
    is_last: bool = False
    model: Names = ()  # names of attributes with the model; they take precedence over the names of the conventions
    # True if the metric counts calls that other sources report. Its records are kept only for reference,
    # unless [sources.NAME] sets `count = true`.
    repeats_calls: bool = False
    # True if the metric counts all calls that an inference server processed, for any client
    is_served: bool = False


class TakeItem(Protocol):
    """
    A function that adds the record of an item to an outcome. It returns False if the item is not a call.
    `tags` and `device` come from the item's resource.
    """

    def __call__(
        self,
        item_index: int,
        item: Any,
        outcome: ReadOutcome,
        *,
        tags: Mapping[str, str],
        device: str | None,
        version: str,
    ) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TelemetryProduct:
    """Declaration of one product: how to recognize and read its telemetry."""

    source: str

    # Names that identify the product: scopes, SDKs and service names.
    scopes: Names = ()
    scope_beginnings: Names = ()
    sdks: Names = ()
    services: Names = ()
    # Values of `telemetry.sdk.language` that identify the product in a scope with the name of the service.
    languages: Names = ()
    # Span attributes that identify the product if scope, SDK and service are unknown.
    marks: Names = ()
    mark_beginnings: Names = ()
    # attributes that identify the product only if the function returns True for the span
    weak_marks: Mapping[str, Callable[[Span], bool]] = field(default_factory=dict)
    marks_above_sender: bool = False  # True if marks take precedence over scope, SDK and service
    # True if spans from the product's own scopes belong to the product, even with another product's marks
    scopes_above_marks: bool = False
    # Names of spans that the product sends only to test an export. They are never calls.
    test_spans: Names = ()
    marks_points: bool = False  # True if marks also identify metric points
    kinds: tuple[KindAttribute, ...] = ()

    # The product's own attribute names by field of `semconv.FIELDS`. Names in `semconv` take precedence.
    names: Mapping[str, Names] = field(default_factory=dict)
    is_gateway: bool = False  # True if the product reports calls of other programs, such as assistants
    zero_cost_is_unknown: bool = False  # True if the product writes a cost of 0 for models without a price
    metadata: Names = ()  # prefixes of attributes that hold tags chosen by the sender
    no_metadata: Names = ()  # prefixes within `metadata` that are not tags
    quotes_metadata: bool = False  # True if the product writes metadata values as JSON
    tag_lists: Names = ()

    # Names that mean a field only in this product. They replace the shared names, and are read only after an
    # item is known to be a call.
    own_names: Mapping[str, Names] = field(default_factory=dict)
    # Attributes by tag. They are read from the item, or from its resource if the item has none.
    tags: Mapping[str, Names] = field(default_factory=dict)
    # Fields that all calls of one conversation share: session, run and `tag:NAME`. A capture must show that calls
    # with the same values send the same beginning of the input again.
    lane: Names = ()
    # function that computes further tags from the attributes and the user
    more_tags: Callable[[Attributes, str | None], Mapping[str, str]] | None = None

    # Functions by attribute. They read an attribute that holds several counts, or reduce a JSON text to the
    # parts that may be stored.
    containers: Mapping[str, Callable[[Any], SpanFields]] = field(default_factory=dict)
    reductions: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    # Attributes whose text is read for counts and an id while decoding. `usage_objects` has the functions.
    # The text itself is never stored.
    texts: Mapping[str, Callable[[str], dict[str, Any]]] = field(default_factory=dict)

    spans: SpanDialect = SpanDialect()
    # False if the product's scope and service do not identify its spans. The spans are then read by
    # the conventions' rules.
    names_spans: bool = True

    events: Mapping[str, LogEvent] = field(default_factory=dict)
    # rules for the event of the conventions, if the product writes it in a different way
    details: LogDialect | None = None
    # Prefixes of the product's events. An event without an entry and without counts is ignored.
    event_beginnings: Names = ()
    # Events that are never calls, even with counts, because they repeat calls or sum them up.
    no_calls: Names = ()
    # Returns the full event name from the record, the stated name and the source.
    event_name: Callable[[LogRecord, str, str], str] | None = None
    twins: Callable[[], LogRecordPairs] | None = None

    # metric families by metric name. In a name, `*` matches one part between dots.
    metrics: Mapping[str, MetricFamily] = field(default_factory=dict)
    # Regular expressions for metrics that repeat a family's counts, such as distributions.
    repeated_metrics: Names = ()
    # True if `gen_ai.client.token.usage` of the product repeats its own token metric
    repeats_token_usage: bool = False
    # function that maps the sent metric name to the declared name, for metrics in the product's scopes
    metric_name: Callable[[str], str] | None = None

    # Attributes that mark items for the functions below, one function for each signal.
    taken_marks: Names = ()
    take_span: TakeItem | None = None
    take_log: TakeItem | None = None
    take_point: TakeItem | None = None
