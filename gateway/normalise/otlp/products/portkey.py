"""
Portkey: rows of its analytics, sent as spans.

The span status is always good, and callers may give several attempts the same span id. The row's own id
therefore identifies the call.
"""

from __future__ import annotations

from functools import partial

from gateway.normalise.formats import portkey
from gateway.normalise.formats.engine.declaration import add_calls_of_gateway_row
from gateway.normalise.otlp.product import TelemetryProduct

PRODUCT = TelemetryProduct(
    source="portkey",
    is_gateway=True,
    # names of the conventions that only Portkey's first traces use
    names={"input": ("gen_ai.response.input_tokens",), "output": ("gen_ai.response.output_tokens",)},
    taken_marks=("ai_org",),
    take_span=partial(add_calls_of_gateway_row, portkey.FORMAT),
)
