"""Ollama has no metrics: those of an exporter that stands in front of it count what it served."""

from __future__ import annotations

from gateway.normalise.otlp.metrics.served import served
from gateway.normalise.otlp.metrics.token_types import INPUT, OUTPUT
from gateway.normalise.otlp.product import Product

PRODUCT = Product(
    source="ollama",
    metrics=served("ollama_", {"tokens_processed": INPUT, "tokens_generated": OUTPUT}),
    repeated_metrics=(r"ollama_tokens_per_second",),
)
