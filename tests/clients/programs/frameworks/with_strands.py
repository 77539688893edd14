"""Strands Agents with its own tracing and counters."""

from __future__ import annotations

import os
import sys

from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel
from strands.telemetry import StrandsTelemetry

QUESTION = "What is the toll?"


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def agents(*tools: object, path: str = "") -> list[Agent]:
    provider = os.environ["PROVIDER_URL"] + path
    openai = OpenAIModel(client_args={"base_url": f"{provider}/v1", "max_retries": 0}, model_id="gpt-4o")
    anthropic = AnthropicModel(
        client_args={"base_url": provider, "max_retries": 0}, model_id="claude-sonnet-4-5", max_tokens=1024
    )
    return [Agent(model=model, tools=list(tools), callback_handler=None) for model in (openai, anthropic)]


def answers() -> None:
    for agent in agents():
        agent(QUESTION)


def tools() -> None:
    for agent in agents(weather):
        agent(QUESTION)


def failures() -> None:
    for agent in agents(path="/fail-500"):
        try:
            agent(QUESTION)
        except Exception as error:
            assert getattr(error, "status_code", None) == 500, error
        else:
            raise AssertionError("it did not fail")


telemetry = StrandsTelemetry()
telemetry.setup_otlp_exporter()
telemetry.setup_meter(enable_otlp_exporter=True)
for name in sys.argv[1:]:
    globals()[name]()
telemetry.tracer_provider.shutdown()
telemetry.meter_provider.shutdown()
