"""All types of enforcers, by the name in the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.bills.enforcers.source import EnforcerType
from gateway.bills.enforcers.types.anthropic import ANTHROPIC
from gateway.bills.enforcers.types.litellm import LITELLM
from gateway.bills.enforcers.types.openai import OPENAI
from gateway.bills.enforcers.types.openrouter import OPENROUTER

TYPES: Mapping[str, EnforcerType] = {
    "litellm": LITELLM,
    "openrouter": OPENROUTER,
    "anthropic": ANTHROPIC,
    "openai": OPENAI,
}
