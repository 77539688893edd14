"""Strands Agents: spans of the conventions, with the figures of whoever serves the model."""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import Product, SpanDialect
from gateway.normalise.reading.tokens import COUNT_CACHE_APART

_NEW_NAMES = frozenset({"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"})


def _without_cache(span: Span, provider: str | None, model: str | None) -> bool:
    # Strands writes its own name where the provider should be, so the model's name decides.
    # Since version 1.54 it puts the cache into the input itself, and writes the conventions' names for it
    # as well.
    if model is None or not _NEW_NAMES.isdisjoint(span.attributes):
        return False
    # `anthropic/claude-sonnet-4` is a name of LiteLLM's, which counts as OpenAI does.
    is_litellms = "/" in model and not model.startswith("arn:")
    return not is_litellms and semconv.model_provider(model) in COUNT_CACHE_APART


PRODUCT = Product(
    source="strands",
    scope_beginnings=("strands.",),
    spans=SpanDialect(without_cache=_without_cache),
    repeated_metrics=(r"strands\.event_loop\..*\.tokens",),
)
