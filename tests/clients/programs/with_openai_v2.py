"""OpenTelemetry's own instrumentation of the OpenAI library."""

from __future__ import annotations

import sys

import openai
import openai_calls
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
from telemetry import exported

with exported() as provider:
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    openai_calls.run(openai, sys.argv[1:])
