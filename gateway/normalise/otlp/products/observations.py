"""Langfuse and MLflow: a span says in one attribute whether it is a call, and holds its figures in objects."""

from __future__ import annotations

from gateway.normalise.otlp.decoding.model import Span
from gateway.normalise.otlp.shapes import Shape
from gateway.normalise.reading import vocabulary as words

LANGFUSE_TYPE = "langfuse.observation.type"
MLFLOW_TYPE = "mlflow.spanType"
_LANGFUSE = {"generation": words.CHAT, "embedding": words.EMBEDDINGS}
_MLFLOW = {"CHAT_MODEL": words.CHAT, "LLM": words.CHAT, "EMBEDDING": words.EMBEDDINGS}


def langfuse_operation(span: Span, shape: Shape) -> str | None:
    return _LANGFUSE.get((words.text(span.attributes.get(LANGFUSE_TYPE)) or "").lower())


def mlflow_operation(span: Span, shape: Shape) -> str | None:
    return _MLFLOW.get(words.text(words.unquoted(span.attributes.get(MLFLOW_TYPE))) or "")
