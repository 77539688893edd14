"""AutoGen's agents under OpenInference."""

from __future__ import annotations

import asyncio
import os
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from telemetry import exported

QUESTION = "What is the toll?"


def model(path: str = "") -> OpenAIChatCompletionClient:
    provider = os.environ["PROVIDER_URL"] + path
    return OpenAIChatCompletionClient(model="gpt-4o", base_url=f"{provider}/v1", max_retries=0)


async def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


async def answers(_: TracerProvider) -> None:
    for _ in range(2):
        await model().create([UserMessage(content=QUESTION, source="user")])


async def streams(_: TracerProvider) -> None:
    """Stream one call with usage, and one with the default, which has none."""
    for asked in ({"include_usage": True}, {}):
        async for _ in model().create_stream([UserMessage(content=QUESTION, source="user")], **asked):
            pass


async def tools(_: TracerProvider) -> None:
    """Make two calls per run: a tool call for the weather, and the answer."""
    await AssistantAgent("toll", model(), tools=[weather], reflect_on_tool_use=True).run(task=QUESTION)


async def failures(_: TracerProvider) -> None:
    try:
        await model("/fail-500").create([UserMessage(content=QUESTION, source="user")])
    except Exception as error:
        assert getattr(error, "status_code", None) == 500, error
    else:
        raise AssertionError("it did not fail")


async def nested(provider: TracerProvider) -> None:
    """Run with the instrumentation of the underlying OpenAI library as well."""
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    await answers(provider)
    await streams(provider)
    await tools(provider)
    await failures(provider)


with exported() as tracer_provider:
    AutogenAgentChatInstrumentor().instrument(tracer_provider=tracer_provider)
    for name in sys.argv[1:]:
        asyncio.run(globals()[name](tracer_provider))
