"""Mirascope with its own tracing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from mirascope import llm, ops
from telemetry import exported

QUESTION = "What is the toll?"
MODELS = (
    "openai/gpt-4o:completions",
    "openai/gpt-5:responses",
    "anthropic/claude-sonnet-4-5",
    "google/gemini-2.5-flash",
)


@llm.tool
def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def models(path: str = "") -> Iterator[llm.Model]:
    provider = os.environ["PROVIDER_URL"] + path
    llm.register_provider("openai", base_url=f"{provider}/v1", api_key="sk-fake")
    llm.register_provider("anthropic", base_url=provider, api_key="sk-ant-fake")
    llm.register_provider("google", base_url=provider, api_key="fake")
    return (llm.model(name) for name in MODELS)


def answers() -> None:
    for model in models():
        model.call(QUESTION)


def streams() -> None:
    for model in models():
        for _ in model.stream(QUESTION).text_stream():
            pass


def tools() -> None:
    """Make two calls: a tool call for the weather, and the answer in a span that repeats its usage."""
    for model in models():
        response = model.call(QUESTION, tools=[weather])
        response.resume(response.execute_tools())


def functions() -> None:
    """Make a call inside a traced function, whose span repeats the call's usage, in a session."""
    for model in models():
        ask = ops.trace(llm.call(model)(lambda: QUESTION))
        with ops.session(id="morning"):
            ask()


def failures() -> None:
    for model in models("/fail-400"):
        try:
            model.call(QUESTION)
        except llm.BadRequestError as error:
            assert error.status_code == 400, error
        else:
            raise AssertionError("it did not fail")


with exported() as tracer_provider:
    ops.configure(tracer_provider=tracer_provider)
    ops.instrument_llm()
    for name in sys.argv[1:]:
        globals()[name]()
