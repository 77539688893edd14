"""Vercel's AI SDK: the inner do* spans are the calls; the spans around them repeat the last one."""

from __future__ import annotations

from gateway.normalise.otlp import semconv, shapes
from gateway.normalise.otlp.decoding.model import Span
from gateway.normalise.otlp.dialect import Dialect
from gateway.normalise.otlp.shapes import Shape, shape_of
from gateway.normalise.reading import vocabulary as words

OPERATION_ID = "ai.operationId"
_OPERATIONS = (("doGenerate", words.CHAT), ("doStream", words.CHAT), ("doEmbed", words.EMBEDDINGS))


def operation(span: Span, shape: Shape) -> str | None:
    name = words.text(span.attributes.get(OPERATION_ID)) or ""
    return next((operation for ending, operation in _OPERATIONS if name.endswith(ending)), None)


def without_cache(span: Span, provider: str | None, model: str | None) -> bool:
    """Up to version 5 the provider's own way of counting shows through; from 6 on there are inputTokenDetails."""
    attributes = span.attributes
    if OPERATION_ID not in attributes or shape_of(attributes).marks & shapes.VERCEL_DETAILS:
        return False
    stated = semconv.first_text(attributes, ("ai.model.provider", "gen_ai.system")) or ""
    return stated.startswith(("anthropic", "amazon-bedrock")) or ".anthropic." in stated  # `vertex.anthropic.messages`


VERCEL_AI = Dialect(source="vercel_ai", without_cache=without_cache)
