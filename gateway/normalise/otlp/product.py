"""
What can be declared of a product: how its telemetry is recognised and how its spans, logs and metrics are read.

A product's module holds one `Product` with all that is known of it; `products.PRODUCTS` lists them in order
of precedence, and the engines collect from that list.
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
from gateway.normalise.outcome import Outcome
from gateway.normalise.reading import operations
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
    own: dict[Product, AttributeShape]  # the same with the own names of a product, once it was asked for

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


RefineCall = Callable[[Span, SpanCall], None]


class SpanRole(NamedTuple):
    """What a product knows of a span that became no call, where no attribute says so."""

    is_agent: bool = False
    begins_stream: bool = False  # the report of the stream, beside this span, is the call
    usage_of: str | None = None  # it repeats usage: what was used, "model_call" for a call beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDialect:
    """How a product's spans are read, where names are not enough."""

    # None: `span_rules.by_operation_name`.
    operation: Callable[[Span, AttributeShape], str | None] | None = None
    # By provider and model; None: `span_rules.bedrock_scope`.
    without_cache: Callable[[Span, str | None, str | None], bool] | None = None
    without_reasoning: Callable[[Span], bool] | None = None
    more: Callable[[Attributes], Fields] | None = None  # fields that stand in several attributes
    # The provider by the one that is stated and by the model; None: what is stated, else by the model.
    provider: Callable[[str | None, str | None], str | None] | None = None
    # The provider's id of the call, and one that other calls may share; None: those of the vocabulary.
    ids: Callable[[Attributes], tuple[str | None, str | None]] | None = None
    refine: RefineCall | None = None  # exceptions, and how the call is known elsewhere
    refine_sent: RefineCall | None = (
        None  # the same for each call that its scopes send, whoever's marks it bears
    )
    role: Callable[[Span, AttributeShape], SpanRole] | None = None


def always(*_: object) -> bool:
    """True: what such a hook asks is so in all that a product sends."""
    return True


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
    complete: Callable[[Attributes, Tokens], Tokens] | None = None  # adds what is counted beside these
    total: Names = ()
    without_cache: Callable[[str | None], bool] | None = None  # by the provider
    without_reasoning: bool = False
    operation: str = operations.CHAT
    response_id: Names = ()
    shared_id: Names = ()
    own_id: Names = ()  # ids that the source gives each report, unlike those of calls
    call_id: Names = ()  # ids of the call that every report of it knows, as a further name of it
    own_span: bool = False  # trace and span id are those of the call, not of what encloses it

    def provider_of(self, attributes: Attributes, model: str | None) -> str | None:
        """The provider that the event states, else the one that goes without saying."""
        stated = semconv.provider_of(attributes, self.provider)
        return stated or self.unnamed_provider(attributes, model)

    def count(self, attributes: Attributes, provider: str | None, model: str | None) -> Tokens:
        """The tokens of one call; BadValue when they cannot be."""
        stated = self.tokens.counts(attributes)
        if self.complete is not None:
            stated = self.complete(attributes, stated)
        total = semconv.first_count(attributes, self.total)
        without_cache = self.without_cache is not None and self.without_cache(provider)
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


Links = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """An event name that stands for calls."""

    dialect: LogDialect
    failed: bool = False
    timed: bool = True  # its duration_ms is that of the call
    is_call: Callable[[Attributes], bool] = lambda attributes: True
    adds_to_call: bool = False  # to that of another event: its own id is not the call's
    is_final: bool = False  # its cost holds in place of another one
    refine: Callable[[Attributes, Inference], None] | None = None  # exceptions
    # Names, own and other, that it shares with another report of the call (spool.identity).
    links: Callable[[Attributes, Inference], Links] | None = None


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
    # Its sender may count the same in another family that has such a name: of one meter the first to come counts.
    one_of: str | None = None
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

    # Names that mean a field in this product alone, in place of those that every product may use. They are read once
    # an item is known to be a call: they say nothing of whether it is one.
    own_names: Mapping[str, Names] = field(default_factory=dict)
    tags: Mapping[str, Names] = field(default_factory=dict)  # on an item, else on its resource
    more_tags: Callable[[Attributes, str | None], Mapping[str, str]] | None = (
        None  # by attributes and the user
    )

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

    metrics: Mapping[str, MetricFamily] = field(
        default_factory=dict
    )  # by name; `*` stands for any one part of it
    # Expressions for names of distributions and second counters of what a family counts.
    repeated_metrics: Names = ()
    repeats_token_usage: bool = False  # its `gen_ai.client.token.usage` repeats a family of its own
    metric_name: Callable[[str], str] | None = None  # by the name under which its scopes send a metric

    # Items that bear one of these attributes are read as a whole, each signal by its own function.
    taken_marks: Names = ()
    take_span: TakeItem | None = None
    take_log: TakeItem | None = None
    take_point: TakeItem | None = None
