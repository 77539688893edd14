"""opencode's plug-in: its spans are OpenInference's, its counters stand beside them under a prefix of choice."""

from __future__ import annotations

from gateway.normalise.otlp.metrics.token_types import (
    CACHE_READ,
    CACHE_WRITE,
    INPUT_UNCACHED,
    OUTPUT_VISIBLE,
    REASONING,
)
from gateway.normalise.otlp.product import MONEY_UNIT, MetricFamily, Product

PRODUCT = Product(
    source="opencode",
    scopes=("com.opencode",),
    names_spans=False,
    metrics={
        "opencode.token.usage": MetricFamily(
            type_keys=("type",),
            types={
                "input": INPUT_UNCACHED,
                "output": OUTPUT_VISIBLE,
                "reasoning": REASONING,
                "cacheRead": CACHE_READ,
                "cacheCreation": CACHE_WRITE,
            },
        ),
        "opencode.cost.usage": MetricFamily(unit=MONEY_UNIT),
    },
    repeated_metrics=(r"opencode\.session\..*\.total",),
)
