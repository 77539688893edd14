"""Semantic Kernel: spans of the conventions, a counter of tokens for each connector."""

from __future__ import annotations

from gateway.normalise.otlp.metrics import token_types
from gateway.normalise.otlp.product import MetricFamily, Product

_COUNTER = r"semantic_kernel\.connectors\.[^.]+\.tokens\."

PRODUCT = Product(
    source="semantic_kernel",
    scope_beginnings=("Microsoft.SemanticKernel",),
    # Of its first traces.
    names={"input": ("gen_ai.response.prompt_tokens",), "output": ("gen_ai.response.completion_tokens",)},
    metric_patterns={
        rf"{_COUNTER}prompt": MetricFamily(token_type=token_types.INPUT),
        rf"{_COUNTER}completion": MetricFamily(token_type=token_types.OUTPUT),
        rf"{_COUNTER}total": MetricFamily(token_type=token_types.TOTAL),
    },
)
