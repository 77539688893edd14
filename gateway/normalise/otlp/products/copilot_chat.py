"""
Copilot Chat in VS Code: spans and events of the GenAI conventions. If no provider is stated, the provider is
GitHub.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.normalise.otlp.conventions import LOGGED
from gateway.normalise.otlp.product import SpanDialect, TelemetryProduct
from gateway.normalise.otlp.span_rules import provider_rule_with_default, set_cost_from_credits

PRODUCT = TelemetryProduct(
    source="copilot_chat",
    scopes=("copilot-chat",),
    services=("copilot-chat",),
    spans=SpanDialect(provider=provider_rule_with_default("github"), refine=set_cost_from_credits),
    details=replace(LOGGED, unnamed_provider=lambda attributes, model: "github"),
    event_beginnings=("copilot_chat.",),
    no_calls=("copilot_chat.agent.turn", "copilot_chat.session.start"),
)
