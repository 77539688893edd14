"""The server of llama.cpp: counters of all that it served, without the model's name."""

from __future__ import annotations

from gateway.normalise.otlp.metrics.served import served
from gateway.normalise.otlp.metrics.token_types import INPUT, OUTPUT
from gateway.normalise.otlp.product import Product

PRODUCT = Product(
    source="llama_cpp",
    metrics=served("llamacpp:", {"prompt_tokens": INPUT, "tokens_predicted": OUTPUT}),
    repeated_metrics=(r"llamacpp[:_](kv_cache_tokens|n_tokens_max)",),  # room in its memory
)
