"""Semantic Kernel: spans of the GenAI conventions, and token counters for each connector."""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import INPUT, OUTPUT, TOTAL
from gateway.normalise.otlp.product import MetricFamily, TelemetryProduct

_COUNTER = "semantic_kernel.connectors.*.tokens."

PRODUCT = TelemetryProduct(
    source="semantic_kernel",
    scope_beginnings=("Microsoft.SemanticKernel",),
    # Attribute names that only the first traces of Semantic Kernel use.
    names={"input": ("gen_ai.response.prompt_tokens",), "output": ("gen_ai.response.completion_tokens",)},
    metrics={
        f"{_COUNTER}prompt": MetricFamily(token_type=INPUT),
        f"{_COUNTER}completion": MetricFamily(token_type=OUTPUT),
        f"{_COUNTER}total": MetricFamily(token_type=TOTAL),
    },
)
