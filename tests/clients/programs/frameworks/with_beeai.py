"""BeeAI under OpenInference."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from beeai_framework.adapters.anthropic import AnthropicChatModel
from beeai_framework.adapters.openai import OpenAIChatModel, OpenAIEmbeddingModel
from beeai_framework.backend import (
    ChatModel,
    ChatModelError,
    MessageToolResultContent,
    ToolMessage,
    UserMessage,
)
from beeai_framework.tools import StringToolOutput, tool
from openinference.instrumentation.beeai import BeeAIInstrumentor
from telemetry import exported

QUESTION = "What is the toll?"


@tool
def weather(city: str) -> StringToolOutput:
    """The weather."""
    return StringToolOutput(f"rain in {city}")


def models(path: str = "", **more: Any) -> list[ChatModel]:
    provider = os.environ["PROVIDER_URL"] + path
    return [
        OpenAIChatModel("gpt-4o", base_url=f"{provider}/v1", **more),
        AnthropicChatModel("claude-sonnet-4-5", base_url=provider, **more),
    ]


async def answers() -> None:
    for model in models():
        await model.run([UserMessage(QUESTION)])


async def streams() -> None:
    for model in models(stream=True):
        await model.run([UserMessage(QUESTION)])


async def tools() -> None:
    """Make two calls per run: a tool call for the weather, and the answer."""
    for model in models():
        turns: list[Any] = [UserMessage(QUESTION)]
        output = await model.run(turns, tools=[weather])
        turns += output.output
        for call in output.get_tool_calls():
            result = MessageToolResultContent(
                result="rain in Bath", tool_name=call.tool_name, tool_call_id=call.id
            )
            turns.append(ToolMessage(result))
        await model.run(turns, tools=[weather])


async def failures() -> None:
    for model in models("/fail-400"):
        try:
            await model.run([UserMessage(QUESTION)])
        except ChatModelError:
            continue
        raise AssertionError("it did not fail")


async def embeddings() -> None:
    await OpenAIEmbeddingModel(base_url=f"{os.environ['PROVIDER_URL']}/v1").create(["toll", "installation"])


with exported() as provider:
    BeeAIInstrumentor().instrument(tracer_provider=provider)
    for name in sys.argv[1:]:
        asyncio.run(globals()[name]())
