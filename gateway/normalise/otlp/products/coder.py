"""
Coder's AI gateway: counters of all its traffic. Clients of the gateway, or its providers, also report the
same calls one by one.
"""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import (
    CACHE_READ,
    CACHE_WRITE,
    INPUT_UNCACHED,
    OUTPUT,
    REASONING,
    TOTAL,
)
from gateway.normalise.otlp.product import MetricFamily, TelemetryProduct

_TYPES = {
    "input": INPUT_UNCACHED,
    "output": OUTPUT,
    "cache_read_input": CACHE_READ,
    "cache_write_input": CACHE_WRITE,
    "cache_creation_input": CACHE_WRITE,
    "completion_reasoning": REASONING,
    "prompt_audio": "audio",
    "completion_audio": "audio",
    # The following counts are parts of the counts above, so TOTAL makes the reader drop them.
    "prompt_cached": TOTAL,
    "completion_accepted_prediction": TOTAL,
    "completion_rejected_prediction": TOTAL,
}
# Up to version 2.37 Coder also sends each counter under its former name.
_NAMES = [f"coder_{name}_tokens{total}" for name in ("ai_gateway", "aibridged") for total in ("", "_total")]

PRODUCT = TelemetryProduct(
    source="coder",
    own_names={"user": ("initiator_id",)},
    tags={"client": ("client",)},
    metrics={
        name: MetricFamily(type_keys=("type",), types=_TYPES, repeats_calls=True, one_of=name)
        for name in _NAMES
    },
)
