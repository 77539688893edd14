"""Calls with LangChain, by name, for the instrumentations under test."""

from __future__ import annotations

import os
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

QUESTION = "What is the toll?"


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def models() -> list[Any]:
    return [
        ChatOpenAI(model="gpt-4o", max_retries=0),
        ChatOpenAI(model="gpt-5", max_retries=0, use_responses_api=True),
        ChatAnthropic(model="claude-sonnet-4-5", max_retries=0),
    ]


def answers() -> None:
    for model in models():
        model.invoke(QUESTION)


def streams() -> None:
    for model in (ChatOpenAI(model="gpt-4o", max_retries=0, stream_usage=True), models()[-1]):
        for _ in model.stream(QUESTION):
            pass


def tools() -> None:
    """Make two calls: the prompt, and the tool's result."""
    for model in models():
        able = model.bind_tools([weather])
        turns: list[Any] = [HumanMessage(QUESTION)]
        message = able.invoke(turns)
        turns.append(message)
        turns += [
            ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in message.tool_calls
        ]
        able.invoke(turns)


def failures() -> None:
    provider = f"{os.environ['PROVIDER_URL']}/fail-500"
    failing = [
        ChatOpenAI(model="gpt-4o", max_retries=0, base_url=f"{provider}/v1"),
        ChatAnthropic(model="claude-sonnet-4-5", max_retries=0, base_url=provider),
    ]
    for model in failing:
        try:
            model.invoke(QUESTION)
        except Exception as error:
            assert getattr(error, "status_code", None) == 500, error
        else:
            raise AssertionError("it did not fail")


def embeddings() -> None:
    OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False).embed_query("toll")


def run(names: list[str]) -> None:
    for name in names:
        globals()[name]()
