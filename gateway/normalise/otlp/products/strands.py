"""
Strands Agents: spans of the GenAI conventions. Their counts are the ones that the model's provider reports.

Strands for TypeScript names its scope and its provider after the service (`OTEL_SERVICE_NAME`). The service
of the resource may have another name, if the program sets it.
"""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import SpanDialect, TelemetryProduct
from gateway.normalise.reading.tokens import COUNT_CACHE_APART

_OF_PYTHON = "strands."  # prefix of the scopes of Strands for Python
_NEW_NAMES = frozenset({"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"})


def _has_scope_name_as_provider(span: Span) -> bool:
    provider = span.attributes.get("gen_ai.system") or span.attributes.get("gen_ai.provider.name")
    return bool(span.scope.name) and provider == span.scope.name


def _discard_stated_provider(stated: str | None, model: str | None) -> str | None:
    """Return None, because Strands may state its service as the provider. The model name then decides."""
    return None


def _input_excludes_cache(span: Span, provider: str | None, model: str | None) -> bool:
    # The model name decides whether the input excludes the cache, because Strands writes its own name as the
    # provider. From version 1.54 on, it adds the cache to the input itself and also writes the conventions'
    # names.
    if model is None:
        return False
    # Strands for TypeScript copies the counts of Anthropic's API; its counts from Bedrock include the cache.
    if not span.scope.name.startswith(_OF_PYTHON):
        return semconv.provider_by_model_name(model) == "anthropic"
    if any(name in span.attributes for name in _NEW_NAMES):
        return False
    # LiteLLM's model names have the form `anthropic/claude-sonnet-4`, and its counts are like OpenAI's
    is_litellms = "/" in model and not model.startswith("arn:")
    return not is_litellms and semconv.provider_by_model_name(model) in COUNT_CACHE_APART


PRODUCT = TelemetryProduct(
    source="strands",
    scopes=("strands-agents",),
    scope_beginnings=(_OF_PYTHON,),
    languages=("typescript",),
    weak_marks={"gen_ai.event.start_time": _has_scope_name_as_provider},
    spans=SpanDialect(without_cache=_input_excludes_cache, provider=_discard_stated_provider),
    repeated_metrics=(r"strands\.event_loop\..*\.tokens",),
)
