"""Calls with the OpenAI library, by name, for the instrumentations under test."""

from __future__ import annotations

import json
import os
from typing import Any

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = [{"role": "user", "content": "What is the toll?"}]


def failing(openai: Any, status: int, how: str = "fail", **more: Any) -> Any:
    return openai.OpenAI(
        base_url=f"{os.environ['PROVIDER_URL']}/{how}-{status}/v1", **{"max_retries": 0, **more}
    )


def chat(openai: Any) -> None:
    client = openai.OpenAI(max_retries=0)
    for model in ("gpt-4o", "gpt-5", "gpt-4o"):
        client.chat.completions.create(model=model, messages=QUESTION)


def stream(openai: Any) -> None:
    client = openai.OpenAI(max_retries=0)
    options = {"include_usage": True}
    for model in ("gpt-4o", "gpt-5"):
        for _ in client.chat.completions.create(
            model=model, messages=QUESTION, stream=True, stream_options=options
        ):
            pass


def silent_stream(openai: Any) -> None:
    """Call with streaming but without `include_usage`, so that the provider reports no usage."""
    for _ in openai.OpenAI(max_retries=0).chat.completions.create(
        model="gpt-4o", messages=QUESTION, stream=True
    ):
        pass


def responses(openai: Any) -> None:
    client = openai.OpenAI(max_retries=0)
    client.responses.create(model="gpt-5", input="What is the toll?")
    for _ in client.responses.create(model="gpt-5", input="What is the toll?", stream=True):
        pass


def tools(openai: Any) -> None:
    """Make two calls: the prompt, and the tool's result."""
    client = openai.OpenAI(max_retries=0)
    offered = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
    turns: list[Any] = list(QUESTION)
    while True:
        message = (
            client.chat.completions.create(model="gpt-4o", messages=turns, tools=offered).choices[0].message
        )
        if not message.tool_calls:
            return
        turns.append(message)
        for call in message.tool_calls:
            said = f"rain in {json.loads(call.function.arguments)['city']}"
            turns.append({"role": "tool", "tool_call_id": call.id, "content": said})


def failures(openai: Any) -> None:
    for status, model in ((429, "gpt-4o"), (500, "gpt-4o-mini")):
        try:
            failing(openai, status).chat.completions.create(model=model, messages=QUESTION)
        except openai.APIStatusError as error:
            assert error.status_code == status
        else:
            raise AssertionError("it did not fail")


def retry(openai: Any) -> None:
    """The library itself retries: first a 500, then an answer."""
    failing(openai, 500, "flaky", max_retries=2).chat.completions.create(model="gpt-4o", messages=QUESTION)


def embeddings(openai: Any) -> None:
    client = openai.OpenAI(max_retries=0)
    for words in ("toll", ["toll", "installation"]):
        client.embeddings.create(model="text-embedding-3-small", input=words, encoding_format="float")


def run(openai: Any, names: list[str]) -> None:
    for name in names:
        globals()[name](openai)
