"""LangChain under OpenTelemetry's instrumentation, with counters and events."""

from __future__ import annotations

import sys

import langchain_calls
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from telemetry import all_exported

with all_exported():
    LangChainInstrumentor().instrument()
    langchain_calls.run(sys.argv[1:])
