"""SGLang: counters of all calls that a server processed."""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import CACHE_READ, INPUT, OUTPUT, families_of_server_counters
from gateway.normalise.otlp.product import TelemetryProduct

PRODUCT = TelemetryProduct(
    source="sglang",
    metrics=families_of_server_counters(
        "sglang:", {"prompt_tokens": INPUT, "generation_tokens": OUTPUT, "cached_tokens": CACHE_READ}
    ),
    repeated_metrics=(
        r"sglang[:_](\w+_tokens_histogram|realtime_tokens(_total)?)",
        # these metrics report free and used memory as a number of tokens
        r"sglang[:_](num_used_tokens|max_total_num_tokens|(\w+_)?token_usage)",
    ),
)
