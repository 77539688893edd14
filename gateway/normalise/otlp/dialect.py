"""What a dialect is: whose vocabulary a span speaks, which of its spans are calls, and how it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.containers import Fields
from gateway.normalise.otlp.decoding.model import Attributes, Span
from gateway.normalise.otlp.shapes import KIND, LANGFUSE, Names, Shape
from gateway.normalise.reading import vocabulary as words
from spool.record import Inference

ERROR_CODE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNames:
    """Names of a dialect that counts under names of its own, by field."""

    input: Names
    output: Names
    cache_read: Names
    cache_write: Names
    reasoning: Names = ()


def never(span: Span, shape: Shape) -> str | None:
    """Spans that repeat what logs of the same product say in full."""
    return None


def has_usage(span: Span, shape: Shape) -> bool:
    """Whether a span states any token count under the names of the vocabulary."""
    return semconv.first(span.attributes, shape.usage) is not None


def failed(span: Span, shape: Shape) -> bool:
    """Whether the span says that its call failed."""
    if span.status_code == ERROR_CODE:
        return True
    if shape.marks & LANGFUSE and span.attributes.get("langfuse.observation.level") == "ERROR":
        return True  # all that its JavaScript SDK says of a failure
    return bool(shape.error) and semconv.first(span.attributes, shape.error) is not None


_REQUEST_TYPES = {
    "chat": words.CHAT,
    "completion": words.TEXT_COMPLETION,
    "embedding": words.EMBEDDINGS,
    "rerank": words.RERANK,
}
_NO_REQUEST_TYPE = "unknown"  # OpenLLMetry's, for methods that it has no word for: some asynchronous calls

_TOOLS_AND_AGENTS: dict[str, frozenset[str]] = {
    "gen_ai.operation.name": frozenset(
        {"execute_tool", "invoke_agent", "create_agent", "agent_step", "invoke_workflow", "tool", "agent"}
    ),
    "openinference.span.kind": frozenset({"tool", "agent"}),
    "langfuse.observation.type": frozenset({"tool", "agent"}),
    "mlflow.spanType": frozenset({"tool", "agent"}),
    "traceloop.span.kind": frozenset({"tool", "agent"}),
    "langsmith.span.kind": frozenset({"tool", "agent"}),
    "gen_ai.span.kind": frozenset({"tool", "agent"}),
    "spring.ai.kind": frozenset({"tool_call"}),
    "ai.operationId": frozenset({"ai.toolcall"}),
    "span.type": frozenset({"tool", "agent"}),
}


def is_tool_or_agent(span: Span, shape: Shape) -> bool:
    """Whether a span is one: what stands below it is a call of its own, whatever stands above."""
    # A call's span may name the tool that the model asks for, so this is no kind of a span.
    return bool(shape.marks & KIND) and ("gen_ai.tool.name" in span.attributes or _says_so(span))


def _says_so(span: Span) -> bool:
    attributes = span.attributes
    for name, kinds in _TOOLS_AND_AGENTS.items():
        if name in attributes and str(attributes[name]).strip('"').lower() in kinds:
            return True
    return False


def by_operation_name(span: Span, shape: Shape) -> str | None:
    """The operation that a span names; without a name, a model or provider and (usage or an error) are a chat."""
    attributes = span.attributes
    if (named := words.text(attributes.get("gen_ai.operation.name"))) is not None:
        return words.OPERATIONS.get(named)
    kind = words.text(attributes.get("llm.request.type"))
    if kind is not None and kind != _NO_REQUEST_TYPE:
        return _REQUEST_TYPES.get(kind)
    if shape.marks & KIND and _says_so(span):
        return None
    identified = semconv.first_text(attributes, shape.request_model + shape.response_model + shape.provider) is not None
    return words.CHAT if identified and (has_usage(span, shape) or failed(span, shape)) else None


def bedrock_scope(span: Span, provider: str | None, model: str | None) -> bool:
    """OpenLLMetry passes on what Bedrock calls input, which is without the cache; elsewhere the figures decide."""
    return span.scope.name.endswith(".bedrock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A table; the functions say what no table can, and most dialects need none of them."""

    source: str
    operation: Callable[[Span, Shape], str | None] = by_operation_name
    without_cache: Callable[[Span, str | None, str | None], bool] = bedrock_scope  # by provider and model
    without_reasoning: Names = ()  # a span with one of these leaves the reasoning out of its output
    more: Callable[[Attributes], Fields] | None = None  # fields that stand in several attributes
    tokens: TokenNames | None = None  # None: those of the vocabulary
    model: Names = semconv.REQUEST_MODEL
    user: Names = semconv.USER
    provider: str | None = None  # when the span does not say
    model_names_provider: bool = False  # the model's name is stronger than the stated provider
    response_id: Names = semconv.RESPONSE_ID
    shared_id: Names = semconv.SHARED_ID
    zero_cost_is_unknown: bool = False  # it writes 0 for a model without a price
    not_unique: str | None = None  # a response id that equals this attribute identifies no call
    cached_id: Callable[[Attributes], str | None] | None = None  # the source's own id of an answer from its own cache
    refine: Callable[[Span, Inference], None] | None = None  # exceptions
    tags: Names = ()  # bare names that are tags in this dialect
    is_agent: Callable[[Span], bool] | None = None  # an agent's span that no attribute calls one
    run_id: str | None = None  # one record for each value of this attribute: that of the span that ends last
