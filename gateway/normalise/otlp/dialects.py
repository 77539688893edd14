"""Every dialect of spans, and which one a span speaks: by its attributes where they tell, else by scope and sender."""

from __future__ import annotations

from collections.abc import Callable

from gateway.normalise.otlp import semconv, shapes
from gateway.normalise.otlp.decoding.model import Resource, Scope, Span
from gateway.normalise.otlp.dialect import Dialect, by_operation_name, never
from gateway.normalise.otlp.products import observations, openinference, vercel_ai
from gateway.normalise.otlp.products.azure_ai import AGENTS, AZURE_AI, INFERENCE
from gateway.normalise.otlp.products.claude_code_spans import CLAUDE_CODE
from gateway.normalise.otlp.products.litellm import LITELLM
from gateway.normalise.otlp.products.openinference import OPENINFERENCE
from gateway.normalise.otlp.products.openrouter import OPENROUTER
from gateway.normalise.otlp.products.pydantic_ai import PYDANTIC_AI
from gateway.normalise.otlp.products.vercel_ai import VERCEL_AI
from gateway.normalise.otlp.shapes import Shape
from gateway.normalise.otlp.sources import source_of
from gateway.normalise.reading import vocabulary as words


def _counts_as_provider(span: Span, provider: str | None, model: str | None) -> bool:
    return provider in ("anthropic", "aws.bedrock")


_STRANDS_NEW_NAMES = frozenset({"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"})


def _counts_as_model(span: Span, provider: str | None, model: str | None) -> bool:
    # Strands passes on the figures of whoever serves the model, and writes its own name where the provider should be.
    # Since version 1.54 it puts the cache into the input itself, and writes the conventions' names for it as well.
    if model is None or not _STRANDS_NEW_NAMES.isdisjoint(span.attributes):
        return False
    # `anthropic/claude-sonnet-4` is a name of LiteLLM's, which counts as OpenAI does.
    is_litellms = "/" in model and not model.startswith("arn:")
    return not is_litellms and semconv.model_provider(model) in ("anthropic", "aws.bedrock")


def _langsmith_operation(span: Span, shape: Shape) -> str | None:
    """Its exporter calls prompt templates `chat` and retrievers `embeddings`; the kind of run tells them apart."""
    kind = words.text(span.attributes.get("langsmith.span.kind"))
    return by_operation_name(span, shape) if kind in (None, "llm", "embedding") else None


def _is_adk_agent(span: Span) -> bool:
    return span.name.startswith("agent_run [")  # of its first versions, which name no operation


def _cloudflare_operation(span: Span, shape: Shape) -> str | None:
    """Each span is a request to a model, also one that counts no tokens, like an image."""
    is_unnamed = "gen_ai.operation.name" not in span.attributes
    if is_unnamed and semconv.first_text(span.attributes, shape.request_model) is not None:
        return words.CHAT
    return by_operation_name(span, shape)


_TABLE = (
    Dialect(source="otel"),
    Dialect(source="openllmetry"),
    OPENINFERENCE,
    VERCEL_AI,
    Dialect(source="langfuse"),
    Dialect(source="mlflow"),
    Dialect(source="langsmith", operation=_langsmith_operation),
    PYDANTIC_AI,
    Dialect(source="openlit", without_cache=_counts_as_provider),
    Dialect(source="strands", without_cache=_counts_as_model),
    # Its thoughts stand apart from the candidates' tokens under this name only.
    Dialect(
        source="google_adk",
        without_reasoning=("gen_ai.usage.experimental.reasoning_tokens",),
        is_agent=_is_adk_agent,
    ),
    Dialect(source="spring_ai"),
    Dialect(source="semantic_kernel"),
    AZURE_AI,
    CLAUDE_CODE,
    Dialect(source="codex", operation=never),
    Dialect(source="gemini_cli", operation=never),
    Dialect(source="qwen_code", operation=never),
    Dialect(source="copilot_chat", provider="github"),
    Dialect(source="copilot_cli", provider="github"),
    LITELLM,
    OPENROUTER,
    Dialect(
        source="cloudflare",
        operation=_cloudflare_operation,
        user=(*semconv.USER, "user_id"),
        zero_cost_is_unknown=True,
    ),
    Dialect(source="kong", zero_cost_is_unknown=True),
    Dialect(source="agentgateway"),
    Dialect(source="bifrost"),
    Dialect(source="vllm", provider="vllm"),
)
DIALECTS = {dialect.source: dialect for dialect in _TABLE}
OTEL = DIALECTS["otel"]
OPENLLMETRY = DIALECTS["openllmetry"]

_BY_MARK = tuple(
    (mark, DIALECTS[source])
    for mark, source in (
        (shapes.MLFLOW, "mlflow"),
        (shapes.VERCEL, "vercel_ai"),
        (shapes.LANGSMITH, "langsmith"),
        (shapes.SPRING, "spring_ai"),
        (shapes.AGENTGATEWAY, "agentgateway"),
        (shapes.KONG, "kong"),
        (shapes.CLOUDFLARE, "cloudflare"),
        (shapes.VLLM, "vllm"),
        (shapes.LITELLM, "litellm"),
        (shapes.OPENROUTER, "openrouter"),
        (shapes.OPENLLMETRY, "openllmetry"),
        (shapes.LOGFIRE, "pydantic_ai"),  # last: Logfire marks every span that its provider makes
    )
)
_BY_SYSTEM = {AGENTS: AZURE_AI, INFERENCE: AZURE_AI}
_BY_SDK = {"openlit": DIALECTS["openlit"], "bifrost": DIALECTS["bifrost"]}

# A mark that says what kind of span it is comes before the operation's name, whoever sends.
_KINDS: tuple[tuple[int, Callable[[Span, Shape], str | None]], ...] = (
    (shapes.OPENINFERENCE, openinference.operation),
    (shapes.LANGFUSE, observations.langfuse_operation),
    (shapes.MLFLOW, observations.mlflow_operation),
    (shapes.VERCEL, vercel_ai.operation),
)
_KIND_MARKS = shapes.OPENINFERENCE | shapes.LANGFUSE | shapes.MLFLOW | shapes.VERCEL


def near(resource: Resource, scope: Scope) -> Dialect:
    """The dialect of a sender, before its spans have said anything."""
    return DIALECTS.get(source_of(resource, scope), OTEL)


def spoken(span: Span, shape: Shape, sender: Dialect) -> Dialect:
    """The dialect of one span."""
    marks = shape.marks
    if not marks & shapes.DIALECT:
        return sender
    if marks & shapes.OPENINFERENCE:
        return OPENINFERENCE
    if sender is not OTEL:
        return sender
    for mark, dialect in _BY_MARK:
        if marks & mark:
            return dialect
    if marks & shapes.SDK and (dialect_of_sdk := _BY_SDK.get(str(span.attributes["telemetry.sdk.name"]))) is not None:
        return dialect_of_sdk
    if marks & shapes.SYSTEM and (azure := _BY_SYSTEM.get(str(span.attributes["gen_ai.system"]))) is not None:
        return azure
    if marks & shapes.TOTAL and span.scope.name.startswith("opentelemetry.instrumentation."):
        return OPENLLMETRY
    return OTEL


def says_its_kind(shape: Shape) -> bool:
    """Whether a span has one of the marks that come before the operation's name."""
    return bool(shape.marks & _KIND_MARKS)


def operation_of(span: Span, shape: Shape, dialect: Dialect) -> str | None:
    """The operation when the span is an AI call, else None."""
    if says_its_kind(shape):
        for mark, operation in _KINDS:
            if shape.marks & mark:
                return operation(span, shape)
    return dialect.operation(span, shape)
