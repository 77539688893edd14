"""OpenAI's Agents SDK under OpenTelemetry's instrumentation, with counters and events."""

from __future__ import annotations

import asyncio
import sys

import openai_agents_calls
from agents import set_trace_processors, set_tracing_disabled
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.instrumentation.genai.openai_agents import OpenAIAgentsInstrumentor
from telemetry import all_exported

with all_exported():
    set_trace_processors([])  # the default processor sends traces to OpenAI
    set_tracing_disabled(False)
    OpenAIInstrumentor().instrument()
    OpenAIAgentsInstrumentor().instrument()
    asyncio.run(openai_agents_calls.run(sys.argv[1:]))
