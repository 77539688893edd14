"""The server of llama.cpp: counters of all that it served, without the model's name."""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import INPUT, OUTPUT, served
from gateway.normalise.otlp.product import Product

PRODUCT = Product(
    source="llama_cpp",
    metrics=served("llamacpp:", {"prompt_tokens": INPUT, "tokens_predicted": OUTPUT}),
    repeated_metrics=(r"llamacpp[:_](kv_cache_tokens|n_tokens_max)",),  # room in its memory
)
