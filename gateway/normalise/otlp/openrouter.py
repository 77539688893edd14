"""OpenRouter's broadcast: only the span `LLM Generation` is a call; attempts and the inner generation repeat it."""

from __future__ import annotations

from gateway.normalise.otlp import vocabulary as words
from gateway.normalise.otlp.containers import Fields
from gateway.normalise.otlp.dialect import Dialect, by_operation_name
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.shapes import Shape

_CALL = "LLM Generation"
_WRITTEN = ("gen_ai.usage.input_tokens.cache_write_5m", "gen_ai.usage.input_tokens.cache_write_1h")


def _operation(span: Span, shape: Shape) -> str | None:
    return by_operation_name(span, shape) if span.name == _CALL else None


def _cache_written(attributes: Attributes) -> Fields:
    parts = [part for name in _WRITTEN if (part := words.count(attributes.get(name))) is not None]
    return {"cache_write": sum(parts)} if parts else {}


OPENROUTER = Dialect(source="openrouter", operation=_operation, more=_cache_written)
