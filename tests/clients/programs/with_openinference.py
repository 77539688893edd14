"""OpenInference's instrumentations of the OpenAI and Anthropic libraries."""

from __future__ import annotations

import sys

import anthropic
import anthropic_calls
import openai
import openai_calls
from openinference.instrumentation.anthropic import AnthropicInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from telemetry import exported

with exported() as provider:
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    AnthropicInstrumentor().instrument(tracer_provider=provider)
    for name in sys.argv[1:]:
        if hasattr(openai_calls, name):
            openai_calls.run(openai, [name])
        else:
            anthropic_calls.run(anthropic, [name])
