"""Copilot's command line: spans and events of the conventions, without a provider where it is GitHub."""

from __future__ import annotations

from dataclasses import replace

from gateway.normalise.otlp.conventions import LOGGED
from gateway.normalise.otlp.product import Product, SpanDialect

PRODUCT = Product(
    source="copilot_cli",
    scopes=("github.copilot",),
    services=("github-copilot",),
    spans=SpanDialect(provider="github"),
    details=replace(LOGGED, unnamed_provider=lambda attributes, model: "github"),
)
