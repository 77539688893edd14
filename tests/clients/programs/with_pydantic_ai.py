"""Pydantic AI's own instrumentation: agents with and without tools, on three kinds of model."""

from __future__ import annotations

import asyncio
import os
import sys

from openai import AsyncOpenAI
from pydantic_ai import Agent, Embedder
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from telemetry import exported

QUESTION = "What is the toll?"


def models() -> list[Model]:
    return [OpenAIChatModel("gpt-4o"), OpenAIResponsesModel("gpt-5"), AnthropicModel("claude-sonnet-4-5")]


async def answers() -> None:
    for model in models():
        await Agent(model, name="toll").run(QUESTION)


async def streams() -> None:
    for model in models():
        async with Agent(model, name="toll").run_stream(QUESTION) as run:
            await run.get_output()


async def tools() -> None:
    """Make two calls per run: a tool call for the weather, and the answer."""
    for model in models():
        agent = Agent(model, name="toll")

        @agent.tool_plain
        def weather(city: str) -> str:
            return f"rain in {city}"

        await agent.run(QUESTION)


async def failures() -> None:
    for status in (429, 500):
        client = AsyncOpenAI(base_url=f"{os.environ['PROVIDER_URL']}/fail-{status}/v1", max_retries=0)
        agent = Agent(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client)), name="toll")
        try:
            await agent.run(QUESTION)
        except ModelHTTPError as error:
            assert error.status_code == status
        else:
            raise AssertionError("it did not fail")


async def embeddings() -> None:
    await Embedder("openai:text-embedding-3-small").embed_documents(["toll", "installation"])


with exported():
    Agent.instrument_all()
    Embedder.instrument_all()
    for name in sys.argv[1:]:
        asyncio.run(globals()[name]())
