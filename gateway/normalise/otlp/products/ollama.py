"""Ollama: counters of an exporter in front of it, because Ollama itself has no metrics."""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import INPUT, OUTPUT, families_of_server_counters
from gateway.normalise.otlp.product import TelemetryProduct

PRODUCT = TelemetryProduct(
    source="ollama",
    metrics=families_of_server_counters("ollama_", {"tokens_processed": INPUT, "tokens_generated": OUTPUT}),
    repeated_metrics=(r"ollama_tokens_per_second",),
)
