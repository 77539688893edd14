"""
Portkey: its analytics rows, pushed as spans.

Their status is always good, and their span id may be one that the caller gave to several attempts, so the
row's own id identifies the call.
"""

from __future__ import annotations

from functools import partial

from gateway.normalise.formats import portkey
from gateway.normalise.formats.engine.driver import take_row
from gateway.normalise.otlp.product import Product

PRODUCT = Product(
    source="portkey",
    # Of its first traces in the words of the conventions.
    names={"input": ("gen_ai.response.input_tokens",), "output": ("gen_ai.response.output_tokens",)},
    taken_marks=("ai_org",),
    take_span=partial(take_row, portkey.FORMAT),
)
