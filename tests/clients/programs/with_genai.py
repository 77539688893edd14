"""OpenTelemetry's instrumentations of the OpenAI and Anthropic libraries, with counters and events."""

from __future__ import annotations

import sys

import anthropic
import anthropic_calls
import openai
import openai_calls
from opentelemetry.instrumentation.genai.anthropic import AnthropicInstrumentor
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from telemetry import all_exported

with all_exported():
    OpenAIInstrumentor().instrument()
    AnthropicInstrumentor().instrument()
    for name in sys.argv[1:]:
        if hasattr(openai_calls, name):
            openai_calls.run(openai, [name])
        else:
            anthropic_calls.run(anthropic, [name])
