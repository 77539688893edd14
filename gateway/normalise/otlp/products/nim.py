"""NVIDIA NIM: the counters of vLLM for all calls that a server processed, without vLLM's name prefix."""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import CACHE_READ, INPUT, OUTPUT, families_of_server_counters
from gateway.normalise.otlp.product import TelemetryProduct

PRODUCT = TelemetryProduct(
    source="nim",
    metrics=families_of_server_counters(
        "", {"prompt_tokens": INPUT, "generation_tokens": OUTPUT, "prompt_tokens_cached": CACHE_READ}
    ),
    repeated_metrics=(
        r"(prompt_tokens_by_source|(gpu_)?prefix_cache_(queries|hits)|iteration_tokens)(_total)?",
        r"request_(prompt|generation|prefill_kv_computed|max_num_generation|params_max)_?\w*tokens\w*",
    ),
)
