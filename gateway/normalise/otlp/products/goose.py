"""
goose: spans of the GenAI conventions. Its token counter is the size of the last context, so it repeats tokens
of the calls.
"""

from __future__ import annotations

from gateway.normalise.otlp.product import TelemetryProduct

PRODUCT = TelemetryProduct(source="goose", services=("goose",), repeated_metrics=(r"goose\.session_tokens",))
