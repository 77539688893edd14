"""OpenAI's Agents SDK under OpenInference."""

from __future__ import annotations

import asyncio
import sys

import openai_agents_calls
from agents import set_tracing_disabled
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from telemetry import exported

with exported() as provider:
    set_tracing_disabled(False)
    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider, exclusive_processor=True)
    asyncio.run(openai_agents_calls.run(sys.argv[1:]))
