"""OpenInference (Phoenix, Envoy's spans): LLM, EMBEDDING and RERANKER spans are calls, and one SDK's AGENT spans."""

from __future__ import annotations

import re

from gateway.normalise.otlp.decoding.model import Span
from gateway.normalise.otlp.dialect import Dialect, failed, has_usage
from gateway.normalise.otlp.products import vercel_ai
from gateway.normalise.otlp.shapes import Shape
from gateway.normalise.reading import vocabulary as words

KIND = "openinference.span.kind"
_OPERATIONS = {"LLM": words.CHAT, "EMBEDDING": words.EMBEDDINGS}
_CLAUDE_AGENT_SDK = "openinference.instrumentation.claude_agent_sdk"  # its AGENT spans are the only carrier of usage
_HOLDS_CACHE_SINCE = (0, 1, 13)  # the input of these spans
_RELEASE = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", re.ASCII)


def operation(span: Span, shape: Shape) -> str | None:
    kind = (words.text(span.attributes.get(KIND)) or "").upper()
    if kind == "RERANKER":
        return words.RERANK if has_usage(span, shape) else None
    if kind == "AGENT" and span.scope.name == _CLAUDE_AGENT_SDK and (has_usage(span, shape) or failed(span, shape)):
        return "invoke_agent"
    return _OPERATIONS.get(kind)


def _without_cache(span: Span, provider: str | None, model: str | None) -> bool:
    if span.scope.name != _CLAUDE_AGENT_SDK:
        return vercel_ai.without_cache(span, provider, model)
    release = _RELEASE.match(span.scope.version)
    return release is None or tuple(map(int, release.groups())) < _HOLDS_CACHE_SINCE


OPENINFERENCE = Dialect(source="openinference", operation=operation, without_cache=_without_cache)
