from __future__ import annotations

import os
import sys
from typing import Any

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack_integrations.components.generators.anthropic import AnthropicChatGenerator
from openinference.instrumentation.haystack import HaystackInstrumentor
from telemetry import exported

QUESTION = "What is the toll?"


def generators(path: str = "", **more: Any) -> list[Any]:
    provider = os.environ["PROVIDER_URL"] + path
    usage = {"stream_options": {"include_usage": True}} if more else {}
    return [
        OpenAIChatGenerator(
            model="gpt-4o", api_base_url=f"{provider}/v1", max_retries=0, generation_kwargs=usage, **more
        ),
        OpenAIResponsesChatGenerator(model="gpt-5", api_base_url=f"{provider}/v1", max_retries=0, **more),
        AnthropicChatGenerator(model="claude-sonnet-4-5", max_retries=0, **more),
    ]


def run(component: Any, **inputs: Any) -> None:
    pipeline = Pipeline()
    pipeline.add_component("component", component)
    pipeline.run({"component": inputs})


def answers() -> None:
    for generator in generators():
        run(generator, messages=[ChatMessage.from_user(QUESTION)])


def streams() -> None:
    for generator in generators(streaming_callback=lambda _: None):
        run(generator, messages=[ChatMessage.from_user(QUESTION)])


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def tools() -> None:
    """Make two calls per run: a tool call for the weather, and the answer."""
    for generator in generators():
        run(Agent(chat_generator=generator, tools=[weather]), messages=[ChatMessage.from_user(QUESTION)])


def failures() -> None:
    for generator in generators("/fail-500")[:2]:
        try:
            run(generator, messages=[ChatMessage.from_user(QUESTION)])
        except Exception as error:
            assert "500" in str(error), error
        else:
            raise AssertionError("it did not fail")


def embeddings() -> None:
    base = os.environ["PROVIDER_URL"] + "/v1"
    run(OpenAITextEmbedder(model="text-embedding-3-small", api_base_url=base, max_retries=0), text="toll")


with exported() as provider:
    HaystackInstrumentor().instrument(tracer_provider=provider)
    for name in sys.argv[1:]:
        globals()[name]()
