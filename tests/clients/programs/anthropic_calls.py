"""Calls with the Anthropic library, by name, for the instrumentations under test."""

from __future__ import annotations

import os
from typing import Any

MODEL = "claude-sonnet-4-5"
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = [{"role": "user", "content": "What is the toll?"}]
ASKED: dict[str, Any] = {"model": MODEL, "max_tokens": 1024, "messages": QUESTION}


def messages(anthropic: Any) -> None:
    client = anthropic.Anthropic(max_retries=0)
    for _ in range(2):
        client.messages.create(**ASKED)


def raw_stream(anthropic: Any) -> None:
    for _ in anthropic.Anthropic(max_retries=0).messages.create(**ASKED, stream=True):
        pass


def managed_stream(anthropic: Any) -> None:
    with anthropic.Anthropic(max_retries=0).messages.stream(**ASKED) as stream:
        stream.get_final_message()


def message_tools(anthropic: Any) -> None:
    """Make two calls: the prompt, and the tool's result."""
    client = anthropic.Anthropic(max_retries=0)
    offered = [{"name": "weather", "input_schema": WEATHER}]
    turns: list[Any] = list(QUESTION)
    while True:
        message = client.messages.create(**{**ASKED, "messages": turns}, tools=offered)
        used = [block for block in message.content if block.type == "tool_use"]
        if not used:
            return
        turns.append({"role": "assistant", "content": [block.model_dump() for block in message.content]})
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": "rain"} for block in used]
        turns.append({"role": "user", "content": results})


def message_failures(anthropic: Any) -> None:
    for status in (429, 500):
        client = anthropic.Anthropic(base_url=f"{os.environ['PROVIDER_URL']}/fail-{status}", max_retries=0)
        try:
            client.messages.create(**ASKED)
        except anthropic.APIStatusError as error:
            assert error.status_code == status
        else:
            raise AssertionError("it did not fail")


def run(anthropic: Any, names: list[str]) -> None:
    for name in names:
        globals()[name](anthropic)
