"""Text Generation Inference. The sums of its request histograms are the tokens that it served."""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import INPUT, OUTPUT, families_of_server_counters
from gateway.normalise.otlp.product import TelemetryProduct

PRODUCT = TelemetryProduct(
    source="tgi",
    metrics=families_of_server_counters(
        "tgi_", {"request_input_length": INPUT, "request_generated_tokens": OUTPUT}
    ),
    repeated_metrics=(
        r"tgi_(request_max_new_tokens|batch_\w*tokens?\w*|request_mean_time_per_token_duration)",
    ),
)
