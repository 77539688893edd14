from __future__ import annotations

import os
import sys
from typing import Any

from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import OpenAIServerModel, ToolCallingAgent, tool
from telemetry import exported

QUESTION = [{"role": "user", "content": [{"type": "text", "text": "What is the toll?"}]}]


@tool
def weather(city: str) -> str:
    """The weather.

    Args:
        city: where
    """
    return f"rain in {city}"


def model(path: str = "") -> Any:
    provider = os.environ["PROVIDER_URL"] + path
    return OpenAIServerModel(
        "gpt-4o", api_base=f"{provider}/v1", api_key="sk-fake", client_kwargs={"max_retries": 0}
    )


def answers() -> None:
    model().generate(QUESTION)


def streams() -> None:
    for _ in model().generate_stream(QUESTION):
        pass


def tools() -> None:
    ToolCallingAgent([weather], model(), max_steps=2, verbosity_level=0).run("What is the toll?")


def failures() -> None:
    try:
        model("/fail-400").generate(QUESTION)
    except Exception as error:
        assert getattr(error, "status_code", None) == 400, error
    else:
        raise AssertionError("it did not fail")


with exported() as provider:
    SmolagentsInstrumentor().instrument(tracer_provider=provider)
    for name in sys.argv[1:]:
        globals()[name]()
