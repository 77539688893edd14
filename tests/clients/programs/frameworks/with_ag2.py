"""AG2 with its own tracing."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from ag2 import Agent
from ag2.config import AnthropicConfig, ModelConfig, OpenAIConfig, OpenAIResponsesConfig
from ag2.middleware.builtin.telemetry import TelemetryMiddleware
from ag2.tools import tool
from telemetry import exported

QUESTION = "What is the toll?"


@tool
def weather(city: str) -> str:
    """Return the weather, as a tool for the model."""
    return f"rain in {city}"


def models(path: str = "", **more: Any) -> list[ModelConfig]:
    provider = os.environ["PROVIDER_URL"] + path
    shared = {"max_retries": 0, **more}
    return [
        OpenAIConfig("gpt-4o", base_url=f"{provider}/v1", **shared),
        OpenAIResponsesConfig("gpt-5", base_url=f"{provider}/v1", **shared),
        AnthropicConfig("claude-sonnet-4-5", base_url=provider, **shared),
    ]


def agent(model: ModelConfig, *tools: Any) -> Agent:
    return Agent("asker", config=model, tools=tools, middleware=[TelemetryMiddleware(agent_name="asker")])


async def answers() -> None:
    for model in models():
        await agent(model).ask(QUESTION)


async def streams() -> None:
    for model in models(streaming=True):
        await agent(model).ask(QUESTION)


async def tools() -> None:
    """Make two calls per run: a tool call for the weather, and the answer."""
    for model in models():
        await agent(model, weather).ask(QUESTION)


async def failures() -> None:
    for model in models("/fail-500"):
        try:
            await agent(model).ask(QUESTION)
        except Exception as error:
            assert getattr(error, "status_code", None) == 500, error
        else:
            raise AssertionError("it did not fail")


with exported():
    for name in sys.argv[1:]:
        asyncio.run(globals()[name]())
