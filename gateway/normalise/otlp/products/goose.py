"""goose: spans of the conventions; its counter of tokens is the size of the last context, which its calls tell."""

from __future__ import annotations

from gateway.normalise.otlp.product import Product

PRODUCT = Product(source="goose", services=("goose",), repeated_metrics=(r"goose\.session_tokens",))
