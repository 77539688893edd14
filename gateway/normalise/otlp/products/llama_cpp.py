"""The llama.cpp server: counters of all calls that it processed, without the model name."""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import INPUT, OUTPUT, families_of_server_counters
from gateway.normalise.otlp.product import TelemetryProduct

PRODUCT = TelemetryProduct(
    source="llama_cpp",
    metrics=families_of_server_counters("llamacpp:", {"prompt_tokens": INPUT, "tokens_predicted": OUTPUT}),
    # these metrics report free and used memory as a number of tokens
    repeated_metrics=(r"llamacpp[:_](kv_cache_tokens|n_tokens_max)",),
)
