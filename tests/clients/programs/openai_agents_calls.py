"""Calls with OpenAI's Agents SDK, by name, for the instrumentations under test."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI

QUESTION = "What is the toll?"


@dataclass
class Place:
    """Arguments that the fake provider passes to every tool."""

    city: str


@function_tool
def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def agent(*tools: object, path: str = "", chat: bool = False, **more: Any) -> Agent:
    client = AsyncOpenAI(base_url=f"{os.environ['PROVIDER_URL']}{path}/v1", max_retries=0)
    model = OpenAIChatCompletionsModel("gpt-4o", client) if chat else OpenAIResponsesModel("gpt-5", client)
    named = {"name": "asker", "instructions": "Be brief.", **more}
    return Agent(model=model, tools=list(tools), **named)


async def answers() -> None:
    await Runner.run(agent(), QUESTION)
    await Runner.run(agent(chat=True), QUESTION)


async def streams() -> None:
    for made in (agent(), agent(chat=True)):
        async for _ in Runner.run_streamed(made, QUESTION).stream_events():
            pass


async def tools() -> None:
    await Runner.run(agent(weather), QUESTION)
    await Runner.run(agent(weather, chat=True), QUESTION)


async def failures() -> None:
    for made in (agent(path="/fail-500"), agent(path="/fail-500", chat=True)):
        try:
            await Runner.run(made, QUESTION)
        except Exception as error:
            assert getattr(error, "status_code", None) == 500, error
        else:
            raise AssertionError("it did not fail")


async def delegation() -> None:
    """Let an agent use another agent as a tool, which uses a third one."""
    dig = agent(name="inner").as_tool("dig", "Looks closer.", parameters=Place)
    look = agent(dig, name="middle").as_tool("look", "Looks close.", parameters=Place)
    await Runner.run(agent(look), QUESTION)


async def handoffs() -> None:
    """Let an agent hand the conversation over to another agent."""
    second = agent(name="second")
    await Runner.run(agent(handoffs=[second]), QUESTION)


async def run(names: list[str]) -> None:
    for name in names:
        await globals()[name]()
