"""
vLLM: spans of the GenAI conventions, and counters of all calls that the server processed. vLLM is its own
provider.
"""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import CACHE_READ, INPUT, OUTPUT, families_of_server_counters
from gateway.normalise.otlp.product import SpanDialect, TelemetryProduct
from gateway.normalise.otlp.span_rules import provider_rule_with_default

PRODUCT = TelemetryProduct(
    source="vllm",
    scopes=("vllm",),
    scope_beginnings=("vllm.",),
    mark_beginnings=("gen_ai.latency.",),
    spans=SpanDialect(provider=provider_rule_with_default("vllm")),
    metrics=families_of_server_counters(
        "vllm:", {"prompt_tokens": INPUT, "generation_tokens": OUTPUT, "prompt_tokens_cached": CACHE_READ}
    ),
    repeated_metrics=(
        r"vllm[:_](prompt_tokens_by_source|\w*prefix_cache_(queries|hits)|iteration_tokens)(_total)?",
        r"vllm[:_](request|spec_decode)_\w*tokens\w*",
    ),
)
