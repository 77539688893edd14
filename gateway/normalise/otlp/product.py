"""
What can be declared of a product: how its telemetry is recognised and how its spans, logs and metrics are read.

A product's module holds one `Product` with all that is known of it; `products.PRODUCTS` lists them in order
of precedence, and the engines collect from that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from msgspec import Struct

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Attributes, LogRecord, Span
from gateway.normalise.outcome import Outcome
from gateway.normalise.reading import operations
from gateway.normalise.reading.meters import with_tools
from gateway.normalise.reading.tokens import Tokens, agreeing, settle, with_thoughts
from spool.record import Inference

Names = tuple[str, ...]
Fields = Mapping[str, Any]  # input, output, cache_read, cache_write, reasoning, total, cost, model, provider

TOKEN_UNIT = "{token}"
MONEY_UNIT = "USD"


class AttributeShape(Struct, frozen=True, gc=False):
    """What the names of an item's attributes say before any value is read; made by `shapes`."""

    # The names that are there, by field and strongest first.
    input: Names
    output: Names
    cache_read: Names
    cache_write: Names
    reasoning: Names
    total: Names
    request_model: Names
    response_model: Names
    provider: Names
    request_id: Names
    cost: Names
    region: Names
    address: Names
    error: Names
    finish: Names
    user: Names
    team: Names
    session: Names
    api_key: Names
    agent: Names
    containers: Names
    meters: tuple[tuple[str, str], ...]  # the meter, and a name that tells it
    named_tags: tuple[tuple[str, Names], ...]  # the tag, and names that may give it
    metadata: tuple[tuple[str, str | None], ...]  # the name, and that of the tag where it is one tag
    # Whose they are.
    product: Product | None  # whose marks they bear: the first in order of precedence
    weak_marks: tuple[tuple[Product, Callable[[Span], bool]], ...]
    kinds: tuple[Kind, ...]
    deciding_kind: Kind | None  # the first that has an operation
    taken_by: tuple[Product, ...]  # products that may take the item whole
    names_tool: bool
    names_operation: bool  # otherwise the usage of a span decides if it is a call
    names_end_user: bool
    names_ai: bool  # one of them is a name of a model or of token counts

    @property
    def usage(self) -> Names:
        """Every name of a token count."""
        return self.input + self.output + self.cache_read + self.cache_write + self.reasoning

    @property
    def says_kind(self) -> bool:
        """True if an attribute says what kind of span it is."""
        return self.names_tool or bool(self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNames:
    """Names of attributes that count tokens, by field."""

    input: Names
    output: Names
    cache_read: Names
    cache_write: Names = ()
    reasoning: Names = ()

    def counts(self, attributes: Attributes) -> Tokens:
        """The counts under these names; BadValue when one cannot be."""
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
class Kind:
    """An attribute that says what kind of span a span is, whoever sends it."""

    attribute: str
    around: frozenset[str] = frozenset({"tool", "agent"})  # values of spans around calls, in lower case
    # Values of spans that are no calls, whatever they count: they repeat the calls below. Others that count
    # are shown. None: every value but those of calls.
    steps: frozenset[str] | None = _STEPS
    # Decides which spans are calls before the name of the operation does.
    operation: Callable[[Span, AttributeShape], str | None] | None = None
    failure: tuple[str, str] | None = None  # an attribute and its value on a span whose call failed


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDialect:
    """How a product's spans are read: names, and functions where names are not enough."""

    # None: `span_rules.by_operation_name`.
    operation: Callable[[Span, AttributeShape], str | None] | None = None
    operation_names: Names = ("gen_ai.operation.name", "llm.request.type")  # what an explanation cites
    # By provider and model; None: `span_rules.bedrock_scope`.
    without_cache: Callable[[Span, str | None, str | None], bool] | None = None
    without_reasoning: Names = ()  # a span with one of these leaves the reasoning out of its output
    more: Callable[[Attributes], Fields] | None = None  # fields that stand in several attributes
    tokens: TokenNames | None = None  # None: those of the vocabulary
    model: Names | None = None  # None: those of the vocabulary
    provider: str | None = None  # when the span does not say
    model_names_provider: bool = False  # the model's name is stronger than the stated provider
    response_id: Names = semconv.RESPONSE_ID
    shared_id: Names = semconv.SHARED_ID
    not_unique: str | None = None  # a response id that equals this attribute identifies no call
    cached_id: Callable[[Attributes], str | None] | None = None  # its own id of an answer from its cache
    refine: Callable[[Span, Inference], None] | None = None  # exceptions
    # further names of the call (spool.identity)
    also: Callable[[Span, Inference], tuple[bytes, ...]] | None = None
    call_id: Names = ()  # ids of the call under which an event tells how it ended
    is_agent: Callable[[Span], bool] | None = None  # an agent's span that no attribute calls one
    is_attempt: Callable[[Span], bool] | None = None  # a further attempt: no twin of the attempt above it
    # A span that begins a stream is not a call: the report of it, beside that span, is the call.
    begins_stream: Callable[[Span, AttributeShape], bool] | None = None
    reports_stream: Callable[[Span], bool] | None = None
    # Of a span that tells the usage of a call beside it: what was used ("model_call"). None for any other
    # span.
    usage_of: Callable[[Span], str | None] | None = None
    logged: bool = False  # events of its own tell each call, too (LogDialect.repeats_spans)
    run_id: str | None = None  # one record for each value of this attribute: that of the span that ends last


def _by_model(attributes: Attributes, model: str | None) -> str | None:
    return semconv.model_provider(model) if model else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDialect:
    """How a product writes the calls that it logs."""

    model: Names = ("model",)
    response_model: Names = ()
    provider: Names = ()
    unnamed_provider: Callable[[Attributes, str | None], str | None] = _by_model
    tokens: TokenNames
    total: Names = ()
    tool_input: Names = ()  # the prompts of tools, counted beside the input
    without_cache: bool = False
    without_cache_at: frozenset[str] = frozenset()  # providers whose input is passed on as they count it
    without_reasoning: bool = False
    operation: str = operations.CHAT
    response_id: Names = ()
    shared_id: Names = ()
    own_id: Names = ()  # ids that the source gives each report, unlike those of calls
    call_id: Names = ()  # ids of the call that every report of it knows, as a further name of it
    is_free: Callable[[Attributes], bool] = lambda attributes: False  # says that the call is not billed
    repeats_spans: bool = False  # spans of the same product tell each call, too, and neither has an id of it
    own_span: bool = False  # trace and span id are those of the call, not of what encloses it

    def provider_of(self, attributes: Attributes, model: str | None) -> str | None:
        """The provider that the event states, else the one that goes without saying."""
        stated = semconv.provider_of(attributes, self.provider)
        return stated or self.unnamed_provider(attributes, model)

    def count(self, attributes: Attributes, provider: str | None, model: str | None) -> Tokens:
        """The tokens of one call; BadValue when they cannot be."""
        stated = self.tokens.counts(attributes)
        tool_input = semconv.first_count(attributes, self.tool_input)
        if tool_input and stated.input is not None:
            told = with_tools(stated.meters, tool_input)
            stated = stated._replace(input=stated.input + tool_input, meters=told)
        total = semconv.first_count(attributes, self.total)
        without_cache = self.without_cache or provider in self.without_cache_at
        tokens = settle(
            stated, total=total, without_cache=without_cache, without_reasoning=self.without_reasoning
        )
        if (
            total is None
            or tokens.input is None
            or tokens.output is None
            or tokens.input + tokens.output == total
        ):
            return tokens
        inputs = [attributes[name] for name in self.tokens.input if name in attributes]
        outputs = [attributes[name] for name in self.tokens.output if name in attributes]
        if len(inputs) > 1 or len(outputs) > 1:
            tokens = agreeing(tokens, total, inputs, outputs, without_cache=without_cache)
        return with_thoughts(tokens, total) if semconv.is_gemini(provider, model) else tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """An event name that stands for calls."""

    dialect: LogDialect
    failed: bool = False
    timed: bool = True  # its duration_ms is that of the call
    is_call: Callable[[Attributes], bool] = lambda attributes: True
    adds_to_call: bool = False  # to that of another event: its own id is not the call's
    is_final: bool = False  # its cost holds in place of another one
    error_type: str | None = None  # where the event's name says it
    # Names, own and other, of one failure that two events tell (spool.identity).
    links: Callable[[Attributes], tuple[tuple[bytes, bytes], ...]] = lambda attributes: ()


class LogTwins(Protocol):
    """The records of one payload of a product that logs each call twice, held until all of it was seen."""

    def hold(self, place: int, record: LogRecord, event: LogEvent) -> None:
        """Keep a record of the product's own event."""

    def hold_twin(self, record: LogRecord) -> bool:
        """Keep a record of the conventions' event; False when it is the twin of no call."""

    def pairs(self) -> Iterator[tuple[int, LogRecord, LogEvent]]:
        """Every call held, completed from its twin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """
    A metric that counts tokens or money.

    The kind of token is in the name (`token_type`) or in an attribute (`type_keys`, the first that is
    there, translated by `types`; a word that is not in the table stays: it is a subset such as `audio`).
    """

    unit: str = TOKEN_UNIT
    token_type: str | None = None
    type_keys: Names = ()
    types: Mapping[str, str] = field(default_factory=dict)
    divisor: Decimal = Decimal(1)
    # its sender counts the same under another one: of one meter the first to come counts
    has_two_names: bool = False
    model: Names = ()  # before those of the conventions
    repeats_calls: bool = False  # always a shadow, unless [sources.NAME] says `count = true`
    is_served: bool = False  # what a server that runs models served, whoever asked for it


class TakeItem(Protocol):
    """Adds the record of an item; False for an item that is not a call. Tags and device are of its resource."""

    def __call__(
        self, place: int, item: Any, outcome: Outcome, *, tags: Mapping[str, str], device: str | None
    ) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """All that is known of one product."""

    source: str

    # Recognised by its scope, its SDK or its service's name, ...
    scopes: Names = ()
    scope_beginnings: Names = ()
    sdks: Names = ()
    services: Names = ()
    # ... and, where none of these is known, by attributes of a span.
    marks: Names = ()
    mark_beginnings: Names = ()
    weak_marks: Mapping[str, Callable[[Span], bool]] = field(default_factory=dict)  # hold for some spans
    marks_above_sender: bool = False  # its marks count more than scope, SDK and service
    scopes_above_marks: bool = False  # what its own scopes send is its own, whatever else marks it
    marks_points: bool = False  # its marks count on metric points as well
    kinds: tuple[Kind, ...] = ()

    # Attributes under names of its own: by field (those of `semconv.FIELDS`), weaker than the names there.
    names: Mapping[str, Names] = field(default_factory=dict)
    zero_cost_is_unknown: bool = False  # it writes 0 for a model without a price
    metadata: Names = ()  # beginnings of attributes that are tags of the sender's own choice
    no_metadata: Names = ()  # beginnings of others among them
    quotes_metadata: bool = False  # it writes their values as JSON
    tag_lists: Names = ()  # attributes that hold several tags without values

    # Who called, where names mean it in this product alone: on an item, else on its resource.
    user: Names | None = None  # None: the names that every product may use
    session: Names | None = None
    tags: Mapping[str, Names] = field(default_factory=dict)
    no_tags: Names = ()  # values of these tags that say nothing
    installation: str | None = None  # a random id: tag `device` unless it is what the user is known by

    # Attributes whose one value holds several figures, and what of a JSON text may be kept at all.
    containers: Mapping[str, Callable[[Any], Fields]] = field(default_factory=dict)
    reductions: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    # Attributes whose text is read for counts and an id while decoding (`usage_objects`), and then forgotten.
    texts: Mapping[str, Callable[[str], dict[str, Any]]] = field(default_factory=dict)

    spans: SpanDialect = SpanDialect()
    names_spans: bool = True  # False: its scope and service say nothing of spans, which are the conventions'

    events: Mapping[str, LogEvent] = field(default_factory=dict)
    details: LogDialect | None = None  # how it writes the conventions' event, if not as these say
    event_beginnings: Names = ()  # its events: those that stand for no call and count nothing are none
    # those among them that are none whatever they count: they repeat calls, or sums of calls
    no_calls: Names = ()
    # The whole name of an event, by record, stated name and source.
    event_name: Callable[[LogRecord, str, str], str] | None = None
    twins: Callable[[], LogTwins] | None = None

    metrics: Mapping[str, MetricFamily] = field(default_factory=dict)
    metric_patterns: Mapping[str, MetricFamily] = field(default_factory=dict)  # by expressions for names
    repeated_metrics: Names = ()  # the same, of distributions and second counters of what a family counts
    repeats_token_usage: bool = False  # its `gen_ai.client.token.usage` repeats a family of its own
    # of these names, in whose place its user may choose another for what its scopes send
    metric_beginning: str = ""

    # Items that bear one of these attributes are read as a whole, each signal by its own function.
    taken_marks: Names = ()
    take_span: TakeItem | None = None
    take_log: TakeItem | None = None
    take_point: TakeItem | None = None
