"""All report sources, in the order in which they are tried."""

from __future__ import annotations

from gateway.bills.statements.sources.anthropic import ANTHROPIC_COSTS, ANTHROPIC_USAGE
from gateway.bills.statements.sources.anthropic_analytics import (
    ANTHROPIC_ANALYTICS_COSTS,
    ANTHROPIC_ANALYTICS_USAGE,
)
from gateway.bills.statements.sources.aws import AWS_COST_EXPLORER, AWS_CUR
from gateway.bills.statements.sources.azure import AZURE_COSTS
from gateway.bills.statements.sources.cursor import CURSOR_USAGE_EVENTS
from gateway.bills.statements.sources.focus import FOCUS
from gateway.bills.statements.sources.github_copilot import GITHUB_COPILOT
from gateway.bills.statements.sources.google import GOOGLE_BILLING
from gateway.bills.statements.sources.litellm import LITELLM
from gateway.bills.statements.sources.openai_costs import OPENAI_COSTS
from gateway.bills.statements.sources.openai_usage import OPENAI_USAGE, OPENAI_USAGE_EMBEDDINGS
from gateway.bills.statements.sources.openrouter import OPENROUTER

SOURCES = {
    source.name: source
    for source in (
        OPENAI_USAGE,
        OPENAI_USAGE_EMBEDDINGS,
        OPENAI_COSTS,
        ANTHROPIC_USAGE,
        ANTHROPIC_COSTS,
        ANTHROPIC_ANALYTICS_USAGE,
        ANTHROPIC_ANALYTICS_COSTS,
        AWS_CUR,
        AWS_COST_EXPLORER,
        AZURE_COSTS,
        GOOGLE_BILLING,
        OPENROUTER,
        GITHUB_COPILOT,
        CURSOR_USAGE_EVENTS,
        LITELLM,
        FOCUS,
    )
}
