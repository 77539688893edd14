from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI, OpenAIResponses
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from telemetry import exported

QUESTION = "What is the toll?"


def models(path: str = "") -> list[Any]:
    provider = os.environ["PROVIDER_URL"] + path
    return [
        OpenAI(model="gpt-4o", api_base=f"{provider}/v1", max_retries=0),
        OpenAIResponses(model="gpt-5", api_base=f"{provider}/v1", max_retries=0),
    ]


def answers() -> None:
    for model in models():
        model.chat([ChatMessage(QUESTION)])


def streams() -> None:
    for model in models():
        for _ in model.stream_chat([ChatMessage(QUESTION)]):
            pass


def tools() -> None:
    """Make two calls per run: a tool call for the weather, and the answer."""

    def weather(city: str) -> str:
        """The weather."""
        return f"rain in {city}"

    for model in models():
        asyncio.run(_asked(FunctionAgent(tools=[weather], llm=model, streaming=False)))


async def _asked(agent: Any) -> None:
    await agent.run(QUESTION)


def failures() -> None:
    for model in models("/fail-500"):
        try:
            model.chat([ChatMessage(QUESTION)])
        except Exception as error:
            assert getattr(error, "status_code", None) == 500, error
        else:
            raise AssertionError("it did not fail")


with exported() as provider:
    LlamaIndexInstrumentor().instrument(tracer_provider=provider)
    for name in sys.argv[1:]:
        globals()[name]()
