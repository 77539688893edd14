"""
AG2 before version 1 under OpenInference, where the instrumentations of the underlying libraries report the calls.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from autogen import ConversableAgent, LLMConfig
from openinference.instrumentation.ag2 import AG2Instrumentor
from openinference.instrumentation.anthropic import AnthropicInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from telemetry import exported

QUESTION = "What is the toll?"


def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def configurations(path: str = "", **more: Any) -> list[LLMConfig]:
    provider = os.environ["PROVIDER_URL"] + path
    openai = {"model": "gpt-4o", "api_key": "sk-fake", "base_url": f"{provider}/v1", "max_retries": 0}
    anthropic = {
        "api_type": "anthropic",
        "model": "claude-sonnet-4-5",
        "api_key": "sk-ant-fake",
        "base_url": provider,
    }
    return [LLMConfig({**one, **more}, cache_seed=None) for one in (openai, anthropic)]


def ask(configuration: LLMConfig, *tools: Any) -> None:
    agent = ConversableAgent(
        "asker", llm_config=configuration, human_input_mode="NEVER", functions=list(tools)
    )
    agent.run(message=QUESTION, max_turns=2 if tools else 1, user_input=False).process()


def answers() -> None:
    for configuration in configurations():
        ask(configuration)


def streams() -> None:
    ask(configurations(stream=True)[0])


def tools() -> None:
    """Make two calls per run: a tool call for the weather, and the answer."""
    for configuration in configurations():
        ask(configuration, weather)


def failures() -> None:
    for configuration in configurations("/fail-500"):
        with suppress(Exception):
            ask(configuration)


with exported() as provider:
    for instrumentor in (AG2Instrumentor(), OpenAIInstrumentor(), AnthropicInstrumentor()):
        instrumentor.instrument(tracer_provider=provider)
    for name in sys.argv[1:]:
        globals()[name]()
