"""CrewAI under OpenInference: its own instrumentation for crews, and the provider library's for calls."""

from __future__ import annotations

import os
import sys
from typing import Any

# CrewAI must not send its own telemetry to its vendor.
os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from openinference.instrumentation.crewai import CrewAIInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from telemetry import exported

QUESTION = "What is the toll?"


@tool("weather")
def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def run(*tools: Any, path: str = "", **more: Any) -> None:
    provider = os.environ["PROVIDER_URL"] + path
    model = LLM(model="gpt-4o", base_url=f"{provider}/v1", api_key="sk-fake", max_retries=0, **more)
    agent = Agent(
        role="toll", goal="answer", backstory="none", llm=model, tools=list(tools), max_retry_limit=0
    )
    Crew(agents=[agent], tasks=[Task(description=QUESTION, expected_output="words", agent=agent)]).kickoff()


def answers() -> None:
    run()
    run()


def streams() -> None:
    run(stream=True)


def tools() -> None:
    """Make two calls in one run: a tool call for the weather, and the answer."""
    run(weather)


def failures() -> None:
    try:
        run(path="/fail-500")
    except Exception as error:
        assert "500" in str(error), error
    else:
        raise AssertionError("it did not fail")


with exported() as provider:
    CrewAIInstrumentor().instrument(tracer_provider=provider)
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    for name in sys.argv[1:]:
        globals()[name]()
