"""Copilot CLI: spans and events of the conventions. If no provider is stated, it is GitHub."""

from __future__ import annotations

from dataclasses import replace

from gateway.normalise.otlp.conventions import LOGGED
from gateway.normalise.otlp.product import Product, SpanDialect
from gateway.normalise.otlp.span_rules import COPILOT_BEGINNING, given, read_credits

PRODUCT = Product(
    source="copilot_cli",
    scopes=("github.copilot",),
    services=("github-copilot",),
    mark_beginnings=(COPILOT_BEGINNING,),  # applications that embed it choose their own scope
    spans=SpanDialect(provider=given("github"), refine=read_credits),
    details=replace(LOGGED, unnamed_provider=lambda attributes, model: "github"),
)
