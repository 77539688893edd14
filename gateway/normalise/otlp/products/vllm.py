"""
vLLM: spans of the conventions, and counters of all calls that the server processed. vLLM is its own provider.
"""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import CACHE_READ, INPUT, OUTPUT, server_families
from gateway.normalise.otlp.product import Product, SpanDialect
from gateway.normalise.otlp.span_rules import default_provider

PRODUCT = Product(
    source="vllm",
    scopes=("vllm",),
    scope_beginnings=("vllm.",),
    mark_beginnings=("gen_ai.latency.",),
    spans=SpanDialect(provider=default_provider("vllm")),
    metrics=server_families(
        "vllm:", {"prompt_tokens": INPUT, "generation_tokens": OUTPUT, "prompt_tokens_cached": CACHE_READ}
    ),
    repeated_metrics=(
        r"vllm[:_](prompt_tokens_by_source|\w*prefix_cache_(queries|hits)|iteration_tokens)(_total)?",
        r"vllm[:_](request|spec_decode)_\w*tokens\w*",
    ),
)
