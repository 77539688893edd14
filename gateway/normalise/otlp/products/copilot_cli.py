"""
Copilot CLI: spans and events of the GenAI conventions. If no provider is stated, the provider is GitHub.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.normalise.otlp.conventions import LOGGED
from gateway.normalise.otlp.product import SpanDialect, TelemetryProduct
from gateway.normalise.otlp.span_rules import (
    COPILOT_BEGINNING,
    provider_rule_with_default,
    set_cost_from_credits,
)

PRODUCT = TelemetryProduct(
    source="copilot_cli",
    scopes=("github.copilot",),
    services=("github-copilot",),
    # beginnings of attribute names that identify the CLI, because applications that embed it choose their own
    # scope
    mark_beginnings=(COPILOT_BEGINNING,),
    spans=SpanDialect(provider=provider_rule_with_default("github"), refine=set_cost_from_credits),
    details=replace(LOGGED, unnamed_provider=lambda attributes, model: "github"),
)
