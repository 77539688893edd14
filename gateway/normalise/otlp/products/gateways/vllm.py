"""vLLM: spans of the conventions, from a server that is its own provider."""

from __future__ import annotations

from gateway.normalise.otlp.product import Product, SpanDialect

PRODUCT = Product(
    source="vllm",
    scopes=("vllm",),
    scope_beginnings=("vllm.",),
    mark_beginnings=("gen_ai.latency.",),
    spans=SpanDialect(provider="vllm"),
)
