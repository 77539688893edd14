"""Calls with Google's Agent Development Kit, by name, for the instrumentations under test."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.google_llm import Gemini
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

QUESTION = types.Content(role="user", parts=[types.Part(text="What is the toll?")])


def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def models(path: str = "") -> list[Any]:
    provider = os.environ["PROVIDER_URL"] + path
    return [
        Gemini(model="gemini-2.5-flash", base_url=provider),
        LiteLlm("openai/gpt-4o", api_base=f"{provider}/v1", num_retries=0),
    ]


async def asked(model: Any, *tools: Any, mode: StreamingMode = StreamingMode.NONE) -> None:
    runner = InMemoryRunner(LlmAgent(name="asker", model=model, tools=list(tools)), app_name="toll")
    session = await runner.session_service.create_session(app_name="toll", user_id="ada")
    config = RunConfig(streaming_mode=mode)
    async for _ in runner.run_async(
        user_id="ada", session_id=session.id, new_message=QUESTION, run_config=config
    ):
        pass


async def answers() -> None:
    for model in models():
        await asked(model)


async def streams() -> None:
    for model in models():
        await asked(model, mode=StreamingMode.SSE)


async def tools() -> None:
    """Make two calls: a tool call for the weather, and the answer."""
    await asked(models()[0], weather)


async def failures() -> None:
    for model in models("/fail-400"):
        with suppress(Exception):
            await asked(model)


async def run(names: list[str]) -> None:
    for name in names:
        await globals()[name]()
