from __future__ import annotations

import os
import sys
from typing import Any

from agno.agent import Agent
from agno.models.anthropic import Claude
from agno.models.openai import OpenAIChat, OpenAIResponses
from openinference.instrumentation.agno import AgnoInstrumentor
from telemetry import exported

QUESTION = "What is the toll?"


def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def models(path: str = "") -> list[Any]:
    provider = os.environ["PROVIDER_URL"] + path
    return [
        OpenAIChat(id="gpt-4o", base_url=f"{provider}/v1", max_retries=0),
        OpenAIResponses(id="gpt-5", base_url=f"{provider}/v1", max_retries=0),
        Claude(id="claude-sonnet-4-5", client_params={"base_url": provider, "max_retries": 0}),
    ]


def answers() -> None:
    for model in models():
        Agent(model=model, telemetry=False).run(QUESTION)


def streams() -> None:
    for model in models():
        for _ in Agent(model=model, telemetry=False).run(QUESTION, stream=True):
            pass


def tools() -> None:
    """Make two calls per run: a tool call for the weather, and the answer."""
    for model in models():
        Agent(model=model, tools=[weather], telemetry=False).run(QUESTION)


with exported() as provider:
    AgnoInstrumentor().instrument(tracer_provider=provider)
    for name in sys.argv[1:]:
        globals()[name]()
