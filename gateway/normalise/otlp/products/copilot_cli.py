"""Copilot's command line: spans and events of the conventions, without a provider where it is GitHub."""

from __future__ import annotations

from dataclasses import replace

from gateway.normalise.otlp.conventions import LOGGED
from gateway.normalise.otlp.product import Product, SpanDialect
from gateway.normalise.otlp.span_rules import COPILOT_BEGINNING, given, read_credits

PRODUCT = Product(
    source="copilot_cli",
    scopes=("github.copilot",),
    services=("github-copilot",),
    mark_beginnings=(COPILOT_BEGINNING,),  # under a scope of its own choice in applications
    spans=SpanDialect(provider=given("github"), refine=read_credits),
    details=replace(LOGGED, unnamed_provider=lambda attributes, model: "github"),
)
